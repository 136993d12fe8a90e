"""Give labels to new rows, with a model that is in the store."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny

from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.artifacts.identity import file_sha256
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.label_index import read_label_table
from xcore.data.readers.base import Form
from xcore.data.source import LabelFile
from xcore.files import replacing
from xcore.inference.batches import SCORES_FILE, Batch, score_batch
from xcore.inference.drift import batch_facts
from xcore.inference.scorer import Cut, Scorer
from xcore.inference.thresholds import LabelThresholds
from xcore.models.base import Model
from xcore.text.family import load_text

MEGABYTE = 1 << 20


class UsedModel(Component):
    """A trained model as an option of a step: what opens it, and which rows it takes.

    The artifacts themselves are inputs that are in the store already. Their ids say nothing about the code that opens
    them now, so the components that do so are named here.
    """

    family: SerializeAsAny[Model]
    text: SerializeAsAny[Component] | None = Field(None, description="The fitted text featuriser of the model.")
    form: Form


@dataclass(frozen=True)
class ModelParts:
    """A trained model and what it needs to be used on new rows: artifacts that are in the store."""

    used: UsedModel
    model: Recipe
    dataset: Recipe
    vocabulary: Recipe | None

    def inputs(self, prefix: str = "") -> dict[str, Recipe]:
        """As inputs of a step, by role."""
        roles = {"model": self.model, "dataset": self.dataset, "vocabulary": self.vocabulary}
        return {f"{prefix}{role}": recipe for role, recipe in roles.items() if recipe is not None}

    def ids(self) -> dict[str, str]:
        """The ids of all parts, by kind."""
        return {recipe.kind: recipe.id for recipe in self.inputs().values()}


def planned_parts(model: Recipe, form: Form) -> ModelParts:
    """The parts of a model that is planned, on a dataset of rows of a form."""
    if not isinstance(model.options, Model):
        raise TypeError(f"expected a recipe of a model, got one of {model.options}")
    vocabulary = model.inputs.get("vocabulary")
    if vocabulary is None and "features" in model.inputs:
        vocabulary = model.inputs["features"].inputs.get("vocabulary")
    used = UsedModel(family=model.options, text=vocabulary.options if vocabulary else None, form=form)
    return ModelParts(used, model, model.inputs["dataset"], vocabulary)


def open_scorer(used: UsedModel, inputs: Mapping[str, Artifact], prefix: str = "") -> Scorer:
    """The model among the inputs of a step, ready for rows."""
    labels = Dataset(inputs[f"{prefix}dataset"].directory).label_table()
    vocabulary = inputs.get(f"{prefix}vocabulary")
    return Scorer(
        used.family.load(inputs[f"{prefix}model"].directory),
        used.form,
        labels["id"],
        labels["name"],
        load_text(vocabulary.directory) if vocabulary else None,
        LabelThresholds.load(inputs["thresholds"].directory) if "thresholds" in inputs else None,
    )


class Scoring(Component):
    """What to score, and how."""

    model: UsedModel
    rows: Batch
    cut: Cut
    names: bool = Field(True, description="Write the names of the labels next to their ids.")
    block_mb: int = Field(16, ge=1, le=1024, description="Size of an input block, in megabytes.")
    labels: LabelFile | None = Field(None, description="Table with more labels, which the model finds by their names.")


def score_rows(context: BuildContext) -> Mapping[str, Any]:
    """Labels and scores of all rows of the files; after a kill, finished blocks are not scored again."""
    options: Scoring = context.options
    scorer = open_scorer(options.model, context.inputs)
    if options.labels is not None:
        table = read_label_table(options.labels)
        scorer = scorer.with_labels(table.ids, table.names)
    counts = score_batch(
        scorer,
        options.rows,
        options.cut,
        names=options.names,
        directory=context.directory,
        scratch=context.scratch,
        report=context.report,
        block_bytes=options.block_mb * MEGABYTE,
    )
    trained = Dataset(context.inputs["dataset"].directory).label_table()
    facts = batch_facts(context.directory / SCORES_FILE, trained["id"], trained["train_count"].to_numpy())
    return counts | facts


def scores_recipe(
    parts: ModelParts,
    rows: Batch,
    cut: Cut,
    names: bool,
    block_mb: int,
    labels: LabelFile | None = None,
    thresholds: Recipe | None = None,
) -> Recipe:
    """The scores of the rows in files; `labels` may add labels that the model was not trained on.

    `thresholds` are those of the model's labels, where the cut asks for them.
    """
    options = Scoring(model=parts.used, rows=rows, cut=cut, names=names, block_mb=block_mb, labels=labels)
    sources = (*rows.files, *([labels.path] if labels else []))
    inputs = parts.inputs() | ({"thresholds": thresholds} if thresholds else {})
    return Recipe("scores", score_rows, options, inputs, sources=sources)


def deliver(scores: Artifact, output: Path) -> bool:
    """Put a copy of the scores where they are wanted, whole or not at all; one with the same bytes stays as it is.

    Returns whether a file with another content was replaced.
    """
    source, wanted = scores.directory / SCORES_FILE, scores.manifest.files[SCORES_FILE]
    if output.is_file() and output.stat().st_size == wanted.n_bytes and file_sha256(output) == wanted.sha256:
        return False
    replaced = output.exists()
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as draft:
        shutil.copyfile(source, draft)
    return replaced
