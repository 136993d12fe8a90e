"""What each kind of artifact holds, checked when one is saved and when one is opened, and which view shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from xcore.errors import ArtifactDamaged, ConfigError

_LABELS = pa.field("labels", pa.list_(pa.int32()))
_SCORED = (_LABELS, pa.field("scores", pa.list_(pa.float32())))
_ROW_ID = pa.field("id", pa.string())


@dataclass(frozen=True)
class Kind:
    """The promise of one kind.

    Attributes
    ----------
    version : int
        Part of every id; raise it when the layout changes.
    files : names that must be there.
    columns : mapping of file pattern to the columns that such a Parquet file must have; more are allowed.
    says : one line for people.
    view : ``module:class`` of the `xcore.views.base.View` that gives an artifact's metrics, tables and plots.
        It is named and not imported: a view reads and draws, and the store must not depend on either.
    """

    version: int
    says: str
    files: tuple[str, ...] = ()
    columns: Mapping[str, tuple[pa.Field, ...]] = field(default_factory=dict)
    view: str = "xcore.views.base:View"


KINDS: dict[str, Kind] = {
    "dataset": Kind(
        1,
        "validated rows with their labels, by split",
        files=("dataset.json", "train.parquet", "train_rows.parquet", "labels.parquet"),
        columns={
            "train.parquet": (_LABELS,),
            "dev.parquet": (_LABELS,),
            "test.parquet": (_LABELS,),
            "*_rows.parquet": (_ROW_ID,),
            "*_bags.parquet": (_ROW_ID, pa.field("members", pa.list_(pa.int32()))),
            "labels.parquet": (_ROW_ID, pa.field("name", pa.string()), pa.field("train_count", pa.int64())),
            "groups.parquet": (
                _ROW_ID,
                pa.field("members", pa.list_(pa.int32())),
                _LABELS,
                pa.field("counts", pa.list_(pa.int32())),
            ),
        },
    ),
    "vocabulary": Kind(1, "a fitted text featuriser", files=("text.json",)),
    "features": Kind(
        1,
        "sparse or dense features of a dataset's rows, by split",  # features.json says which
        files=("features.json", "train.parquet"),
    ),
    "embedding": Kind(
        1,
        "dense vectors of a dataset's rows, by split, and the map that makes them",
        files=("features.json", "train.parquet", "embedding.json", "embedding.safetensors"),
    ),
    "sampler": Kind(1, "a sampler of labels, as flat arrays", files=("sampler.json", "sampler.safetensors")),
    "selection": Kind(
        1,
        "a choice of labels that stand for all, the outliers, and the map between them",
        files=("selection.json", "labels.parquet", "convergence.parquet", "map.safetensors"),
        columns={
            "labels.parquet": (
                pa.field("label", pa.int32()),
                pa.field("name", pa.string()),
                pa.field("role", pa.string()),
                pa.field("gain", pa.float64()),
            )
        },
        view="xcore.views.selection:SelectionView",
    ),
    "label-embeddings": Kind(
        1,
        "one vector per label in the space of the rows",
        files=("label_embeddings.json", "label_embeddings.safetensors"),
        view="xcore.views.label_embeddings:LabelEmbeddingsView",
    ),
    "fine-tuned-encoder": Kind(
        1,
        "a transformer whose last layers were trained, and the vectors that it makes of a dataset's rows, by split",
        files=("features.json", "train.parquet", "text.json", "config.json", "tokenizer.json", "weights.safetensors"),
    ),
    "siamese-encoder": Kind(
        1,
        "an encoder of rows and labels (Module I of SiameseXML)",
        files=("encoder.json", "encoder.safetensors"),
    ),
    "siamese-shortlists": Kind(
        1,
        "labels that each training row is easily confused with, and two indexes of labels (Module II of SiameseXML)",
        files=("shortlists.json", "names.safetensors", "centroids.safetensors", "negatives.safetensors"),
    ),
    "siamese-classifiers": Kind(
        1,
        "a refinement vector for each label (Module III of SiameseXML)",
        files=("classifiers.json", "classifiers.safetensors"),
    ),
    "groups": Kind(
        1,
        "rows that share labels",
        files=("groups.parquet",),
        columns={
            "groups.parquet": (
                pa.field("members", pa.list_(pa.int32())),
                _LABELS,
                pa.field("counts", pa.list_(pa.int32())),
            )
        },
    ),
    "imputed": Kind(
        1,
        "imputed labels of the rows in groups, each with a confidence",
        files=("labels.parquet", "details.json", "quality.json"),
        columns={"labels.parquet": (_LABELS, pa.field("confidence", pa.list_(pa.float32())))},
        view="xcore.views.imputed:ImputedView",
    ),
    "targets": Kind(
        1,
        "imputed labels that a model trains on, and how it reads their confidences",
        files=("labels.parquet", "details.json"),
        columns={"labels.parquet": (_LABELS, pa.field("confidence", pa.list_(pa.float32())))},
    ),
    "model": Kind(1, "a trained model", files=("model.json",), view="xcore.views.model:ModelView"),
    "predictions": Kind(
        1, "the k best labels of each row, with scores", files=("predictions.parquet",), columns={"*.parquet": _SCORED}
    ),
    "scores": Kind(
        2,
        "labels of new rows, with scores",
        files=("scores.parquet",),
        columns={
            "scores.parquet": (
                _ROW_ID,
                pa.field("labels", pa.list_(pa.string())),
                pa.field("scores", pa.list_(pa.float32())),
                pa.field("known", pa.bool_()),
                pa.field("threshold", pa.float32()),
            )
        },
        view="xcore.views.scores:ScoresView",
    ),
    "thresholds": Kind(
        1,
        "a threshold on the score for each label, chosen on dev rows",
        files=("thresholds.parquet",),
        columns={
            "thresholds.parquet": (
                pa.field("threshold", pa.float32()),
                pa.field("common", pa.float32()),
                pa.field("dev_positives", pa.int64()),
            )
        },
    ),
    "comparison": Kind(
        1,
        "a challenger against the champion, on the same rows",
        files=("comparison.json", "metrics.parquet"),
        view="xcore.views.comparison:ComparisonView",
    ),
    "study": Kind(
        2,
        "many results side by side",
        files=("study.json", "cells.parquet", "summary.parquet"),
        view="xcore.views.study:StudyView",
    ),
    "curve": Kind(
        1,
        "a learning curve, measured on rows that were not trained on",
        files=("curve.parquet", "model.json"),
        view="xcore.views.curve:CurveView",
    ),
    "choice": Kind(1, "the settings with the best last point of the learning curve", files=("choice.json",)),
    "simulation": Kind(
        1, "a simulation of the theory", files=("table.parquet",), view="xcore.views.simulation:SimulationView"
    ),
    "evaluation": Kind(
        1,
        "metrics of predictions",
        files=("metrics.json", "per_label.parquet"),
        view="xcore.views.evaluation:EvaluationView",
    ),
}


def schema_of(kind: str) -> Kind:
    """The promise of a kind."""
    if kind not in KINDS:
        raise ConfigError(f"unknown artifact kind {kind!r}; expected one of {', '.join(sorted(KINDS))}")
    return KINDS[kind]


def check_files(kind: str, directory: Path) -> None:
    """Raise `ArtifactDamaged` unless the files in a folder keep the kind's promise."""
    promise = schema_of(kind)
    for name in promise.files:
        if not (directory / name).is_file():
            raise ArtifactDamaged(f"{kind} artifact lacks {name}; expected {', '.join(promise.files)}")
    for path in sorted(directory.glob("*.parquet")):
        pattern = next((pattern for pattern in promise.columns if fnmatch(path.name, pattern)), None)
        if pattern is not None:
            _check_columns(kind, path, promise.columns[pattern])


def _check_columns(kind: str, path: Path, expected: tuple[pa.Field, ...]) -> None:
    found = pq.read_schema(path)
    for column in expected:
        position = found.get_field_index(column.name)
        got = found.field(position).type if position >= 0 else "no such column"
        # Parquet names the items of a list in its own way, so the printed inner types are what must agree.
        if position < 0 or not _same_type(got, column.type):
            raise ArtifactDamaged(
                f"{kind} artifact, {path.name}: column {column.name} is {got}, expected {column.type}"
            )


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_list(expected):
        return bool(pa.types.is_list(found) and found.value_type == expected.value_type)
    return bool(found == expected)
