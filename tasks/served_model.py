"""What a registered model is made of: files, code, signature, example and libraries."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import xcore
from tasks import settings
from tasks.score import ModelParts, UsedModel, open_scorer
from tasks.thresholds import has_dev_labels, thresholds_recipe
from xcore.components import components_in
from xcore.data.dataset import Dataset
from xcore.data.feature_files import COLUMNS
from xcore.data.label_index import read_label_table
from xcore.data.source import LabelFile
from xcore.inference.scorer import Cut

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

SERVING_CODE = Path(__file__).with_name("pyfunc.py")
LIBRARIES = ("mlflow", "numpy", "scipy", "pandas", "pyarrow", "numba", "pydantic", "scikit-learn",
             "threadpoolctl")  # fmt: skip
# Beside those, by the kind of the component that needs them.
LIBRARIES_OF = {
    "wordllama": ("tokenizers",),
    "transformer": ("tokenizers", "torch", "transformers"),
    "memory": ("faiss-cpu",),
    "siamesexml": ("faiss-cpu",),
    "omikuji": ("omikuji",),
}
EXAMPLE_CHARACTERS = 500


def served_parts(parts: ModelParts, labels: LabelFile | None, folder: Path) -> dict[str, Any]:
    """What MLflow needs to know of a model; `folder` may keep files until it is logged."""
    store = settings.store()
    dataset = store.open(parts.dataset.ref).directory
    files = {"model": store.open(parts.model.ref).directory, "labels": _label_table(parts, labels, folder)}
    if has_dev_labels(Dataset(dataset)):
        files["thresholds"] = store.make(thresholds_recipe(parts)).artifact.directory
    if parts.vocabulary:
        files["vocabulary"] = store.open(parts.vocabulary.ref).directory
    return {
        "python_model": str(SERVING_CODE),
        "artifacts": {name: str(path) for name, path in files.items()},
        "code_paths": [str(Path(next(iter(xcore.__path__))))],
        "model_config": {"form": parts.used.form, "scale": parts.used.family.score_scale},
        "signature": signature_of(parts.used.form),
        "input_example": (_example(Dataset(dataset)), {"k": 5}),
        "pip_requirements": [f"{library}=={metadata.version(library)}" for library in _libraries(parts.used)],
    }


def _label_table(parts: ModelParts, labels: LabelFile | None, folder: Path) -> Path:
    """The label table of a served model: that of its dataset, and after it the labels that it was not trained on."""
    dataset = settings.store().open(parts.dataset.ref)
    if labels is None:
        return dataset.directory / "labels.parquet"
    inputs = {role: settings.store().open(recipe.ref) for role, recipe in parts.inputs().items()}
    more = read_label_table(labels)
    scorer = open_scorer(parts.used, inputs).with_labels(more.ids, more.names)
    path = folder / "labels.parquet"
    pq.write_table(pa.table({"id": scorer.label_ids, "name": scorer.label_names}), path)
    return path


def _libraries(used: UsedModel) -> list[str]:
    """What a served model needs; an extra that is not installed here was not needed here."""
    kinds = {getattr(component, "kind", "") for component in components_in(used)}
    extras = {library for kind in kinds for library in LIBRARIES_OF.get(kind, ()) if _is_installed(library)}
    return [*LIBRARIES, *sorted(extras)]


def _is_installed(library: str) -> bool:
    try:
        return bool(metadata.version(library))
    except metadata.PackageNotFoundError:
        return False


def signature_of(form: str) -> ModelSignature:
    """Columns and parameters of requests to a model that takes rows of this form, and columns of its answers."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array

    rows = {
        "text": [ColSpec(DataType.string, "text")],
        "sparse": [ColSpec(Array(DataType.long), "indices"), ColSpec(Array(DataType.double), "values")],
        "vector": [ColSpec(Array(DataType.double), "vector")],
        "image": [ColSpec(Array(DataType.long), "image")],
    }
    answer = {"labels": DataType.string, "names": DataType.string, "scores": DataType.double}
    cut = [ParamSpec("k", DataType.long, Cut().k), ParamSpec("threshold", DataType.double, None)]
    cut.append(ParamSpec("per_label", DataType.boolean, False))
    outputs = Schema([ColSpec(Array(kind), name) for name, kind in answer.items()])
    return ModelSignature(inputs=Schema(rows[form]), outputs=outputs, params=ParamSchema(cut))


def _example(dataset: Dataset) -> Any:
    """The first row of the training split."""
    import pandas as pd

    with pq.ParquetFile(dataset.directory / "train.parquet") as file:
        first: dict[str, Any] = next(file.iter_batches(1, columns=COLUMNS[dataset.form])).to_pylist()[0]
    if "text" in first:
        first["text"] = first["text"][:EXAMPLE_CHARACTERS]
    if "image" in first:
        first["image"] = list(first["image"])  # bytes
    return pd.DataFrame([first])
