"""What a fit learns from, opened from artifacts: rows in the asked form, targets, dev rows, labels and bags."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tasks.featurise import open_features
from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.data.dataset import Dataset
from xcore.data.features import Features
from xcore.data.readers.base import Split
from xcore.grouping.given import given_groups
from xcore.grouping.groups import Groups
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, csr
from xcore.text.family import AnyFittedText, load_text, terms_of
from xcore.training.context import FitContext
from xcore.training.data import (
    CONVERSIONS,
    Bags,
    LabelledRows,
    LabelSide,
    Matrix,
    PreparedStage,
    Reading,
    RowForm,
    Rows,
    TrainingData,
    Wish,
    canonical_csr,
)
from xcore.training.stages import RowMap, Stage


@dataclass(frozen=True)
class StoredRows:
    """The rows of one split of an artifact, read when asked for."""

    source: Dataset | Features
    split: Split
    form: RowForm

    def whole(self) -> Matrix:
        if self.form == "image" and isinstance(self.source, Dataset):
            return self.source.images(self.split)
        return self.source.dense(self.split) if self.form == "vector" else self.source.sparse(self.split)

    def blocks(self) -> Iterator[Matrix]:
        blocks = iter(self.source.blocks(self.split))
        if self.source.form in (self.form, "text"):
            return blocks
        return map(CONVERSIONS[self.source.form, self.form], blocks)


@dataclass(frozen=True)
class TextRows:
    """The texts of one split of a dataset, as they are or as token numbers of a vocabulary."""

    dataset: Dataset
    split: Split
    form: RowForm
    vocabulary: Artifact | None = None

    def whole(self) -> Matrix:
        texts = [text for block in self.dataset.text_blocks(self.split) for text in block.to_pylist()]
        return self._encoded(texts)

    def blocks(self) -> Iterator[Matrix]:
        return (self._encoded(block.to_pylist()) for block in self.dataset.text_blocks(self.split))

    def _encoded(self, texts: list[str]) -> Matrix:
        return texts if self._text is None else self._text.sequences(texts)

    @cached_property
    def _text(self) -> AnyFittedText | None:
        return None if self.vocabulary is None else load_text(self.vocabulary.directory)


def row_inputs(form: RowForm, data: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """What `open_rows` needs for a form: texts come from the dataset, token numbers from its vocabulary too."""
    names = {"text": ("dataset",), "tokens": ("dataset", "vocabulary")}.get(form, ("features",))
    return {name: data[name] for name in names}


def open_rows(inputs: Mapping[str, Artifact], split: Split, form: RowForm) -> Rows:
    """The rows of a split in a form; see `row_inputs`."""
    if form in ("text", "tokens"):
        vocabulary = inputs["vocabulary"] if form == "tokens" else None
        return TextRows(Dataset(inputs["dataset"].directory), split, form, vocabulary)
    return StoredRows(open_features(inputs["features"]), split, form)


def forms_of(inputs: Mapping[str, Artifact]) -> list[RowForm]:
    """The forms in which `open_rows` can give the rows of these inputs."""
    forms: list[RowForm] = [open_features(inputs["features"]).form] if "features" in inputs else []
    if "dataset" in inputs and Dataset(inputs["dataset"].directory).form == "text":
        forms += ["tokens", "text"] if "vocabulary" in inputs else ["text"]
    return forms


def splits_of(inputs: Mapping[str, Artifact]) -> list[Split]:
    """The splits that the rows of these inputs have."""
    source = inputs.get("features") or inputs["dataset"]
    return open_features(source).splits


def training_labels(inputs: Mapping[str, Artifact]) -> tuple[CSR, Reading]:
    """Targets of the training split: the imputed ones that are among the inputs as `labels`, else the dataset's own.

    Where rows are in groups, only the groups have labels.
    """
    if "labels" in inputs:
        imputed = Imputed.load(inputs["labels"].directory)
        return imputed.Y, imputed.reading
    dataset = Dataset(inputs["dataset"].directory)
    if "groups" in inputs:
        return csr(np.zeros(0), np.zeros(0), np.zeros(dataset.n_rows("train") + 1), dataset.n_labels), "weight"
    return dataset.Y("train"), "weight"


def open_training_data(
    inputs: Mapping[str, Artifact],
    form: RowForm,
    wants: Collection[Wish] = (),
    stages: Mapping[str, Stage] | None = None,
) -> TrainingData:
    """The training data that a model or a stage asks for. A stage without a dataset gets no labels."""
    data = TrainingData(open_rows(inputs, "train", form), csr(np.zeros(0), np.zeros(0), np.zeros(1), 0))
    if "dataset" in inputs:
        dataset = Dataset(inputs["dataset"].directory)
        Y, reading = training_labels(inputs)
        data = replace(
            data,
            Y=Y,
            reading=reading,
            dev=_dev_rows(dataset, inputs, form, wants) if "dev" in wants else None,
            labels=_label_side(dataset, inputs, form, wants),
            bags=_training_bags(dataset, inputs) if "bags" in wants else None,
        )
    for role, stage in (stages or {}).items():
        data = data.with_stage(role, open_stage(inputs[role], stage))
    return data


def open_stage(artifact: Artifact, stage: Stage) -> PreparedStage:
    """A stage that was made before, with the training rows that it maps and what it cost."""
    fitted = stage.load(artifact.directory)
    rows = StoredRows(Features(artifact.directory), "train", "vector") if isinstance(fitted, RowMap) else None
    return PreparedStage(fitted, rows, artifact.manifest.seconds, float(artifact.manifest.counts["cpu_seconds"]))


def fit_context(context: BuildContext) -> FitContext:
    """The `FitContext` of a fit inside a step."""
    return FitContext(rng=context.rng, report=context.report, scratch=context.scratch)


def _dev_rows(
    dataset: Dataset, inputs: Mapping[str, Artifact], form: RowForm, wants: Collection[Wish]
) -> LabelledRows | None:
    if "dev" not in dataset.splits:
        return None
    bags = _bags(dataset, "dev") if "bags" in wants and dataset.groups() is not None else None
    return LabelledRows(open_rows(inputs, "dev", form), dataset.Y("dev"), bags)


def _label_side(
    dataset: Dataset, inputs: Mapping[str, Artifact], form: RowForm, wants: Collection[Wish]
) -> LabelSide | None:
    """Label texts; if asked, also as rows of the training rows' space where a vocabulary made those of text."""
    if not {"labels", "names"} & set(wants):
        return None
    texts = dataset.label_texts()
    if "labels" not in wants:
        return LabelSide(texts)
    vocabulary = inputs.get("vocabulary")
    text = load_text(vocabulary.directory) if vocabulary else None
    X = None if text is None else text.sequences(texts) if form == "tokens" else text.transform(texts)
    return LabelSide(texts, X, dataset.label_features(), _has_names(dataset), terms_of(text, form))


def _has_names(dataset: Dataset) -> bool:
    """Whether any label has a name beside its id."""
    table = dataset.label_table()
    names = zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True)
    return any(name and name != key for key, name in names)


def _training_bags(dataset: Dataset, inputs: Mapping[str, Artifact]) -> Bags | None:
    """The groups among the inputs, else those of the dataset, with what is known about their labels."""
    given = dataset.groups()
    if "groups" in inputs:
        groups = Groups.load(inputs["groups"].directory)
    elif given is not None:
        groups = given_groups(given, dataset.n_rows("train"), dataset.n_labels)
    else:
        return None
    return Bags(groups.members, groups.labels, groups.merge == "list")


def _bags(dataset: Dataset, split: Split) -> Bags | None:
    """The bags of a split other than train, with the labels of their rows."""
    bags = dataset.bags(split)
    if bags is None:
        return None
    return Bags(bags.members, canonical_csr(bags.members @ dataset.Y(split)), counted=True)
