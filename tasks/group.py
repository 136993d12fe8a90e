"""Decide which rows share which labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from xcore.artifacts import BuildContext, Recipe
from xcore.data.dataset import Dataset
from xcore.grouping.base import Grouper


def group_rows(context: BuildContext) -> Mapping[str, Any]:
    """Groups of training rows: as the data came with them, or made to study what aggregation costs."""
    dataset = Dataset(context.inputs["dataset"].directory)
    X = open_features(context.inputs["features"]).sparse("train")
    groups = context.options.group(X, dataset.own_labels("train"), context.rng, dataset.groups())
    groups.save(context.directory)
    return dict(groups.counts())


def groups_recipe(grouper: Grouper, dataset: Recipe, features: Recipe, seed: int) -> Recipe:
    """The groups of a dataset's training rows."""
    return Recipe("groups", group_rows, grouper, {"dataset": dataset, "features": features}, seed=seed)
