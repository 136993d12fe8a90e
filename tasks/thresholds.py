"""Choose a threshold for each label on the dev rows of a model's dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.score import ModelParts, UsedModel, open_scorer
from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.inference.promotion import split_ranking
from xcore.inference.thresholds import LabelThresholds, ThresholdOptions, choose_thresholds

SPLIT: Split = "dev"
WANTED_BY = "the split of the thresholds of labels"


class Thresholding(Component):
    """The model, and how its thresholds are chosen."""

    model: UsedModel
    choice: ThresholdOptions = ThresholdOptions()


def choose_label_thresholds(context: BuildContext) -> Mapping[str, Any]:
    """A threshold for each label, with the highest F1 on dev rows."""
    step: Thresholding = context.options
    dataset = Dataset(context.inputs["dataset"].directory)
    dataset.need_split(SPLIT, WANTED_BY)
    scorer = open_scorer(step.model, context.inputs)
    top = split_ranking(scorer, dataset, SPLIT, min(step.choice.depth, dataset.n_labels))
    found = choose_thresholds(top, dataset.Y(SPLIT), step.choice.prior)
    found.save(context.directory)
    n_own = int((found.values != np.float32(found.common)).sum())
    return {"rows": len(top), "labels": dataset.n_labels, "labels_with_own": n_own, "common": found.common}


def thresholds_recipe(parts: ModelParts) -> Recipe:
    """The thresholds of a model's labels. The id is the same, whether the model is planned or in the store."""
    return Recipe("thresholds", choose_label_thresholds, Thresholding(model=parts.used), parts.inputs())


def has_dev_labels(dataset: Dataset) -> bool:
    """Whether there is anything to choose thresholds by."""
    return SPLIT in dataset.splits and bool(dataset.Y(SPLIT).nnz)


def open_thresholds(inputs: Mapping[str, Artifact]) -> LabelThresholds | None:
    """The thresholds among the inputs of a step, if any."""
    return LabelThresholds.load(inputs["thresholds"].directory) if "thresholds" in inputs else None
