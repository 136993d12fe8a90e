"""Give the labels of groups to single rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.grouping.groups import Groups
from xcore.imputation.base import quality_against_truth
from xcore.imputation.heldout import held_out_quality
from xcore.imputation.imputed import Imputed, TargetOptions


def impute_labels(context: BuildContext) -> Mapping[str, Any]:
    """Labels of rows with a confidence each, and how good they are: by held-out groups, and by the truth if known."""
    dataset = Dataset(context.inputs["dataset"].directory)
    X = open_features(context.inputs["features"]).sparse("train")
    groups = Groups.load(context.inputs["groups"].directory)
    imputed = context.options.impute(X, groups, context.rng, context.report)
    imputed.save(context.directory)
    truth = dataset.own_labels("train")
    quality = quality_against_truth(imputed, truth) if truth.nnz else {}
    held_out = held_out_quality(context.options, X, groups, imputed.details, context.rng)
    (context.directory / "quality.json").write_text(json.dumps(quality | held_out, indent=1, sort_keys=True))
    return {**imputed.counts(), **{f"truth_{name}": value for name, value in quality.items()}}


def imputed_recipe(imputer: Component, groups: Recipe, dataset: Recipe, features: Recipe, seed: int) -> Recipe:
    """Labels of a dataset's training rows, imputed from the labels of their groups.

    The options are an imputer, or what chooses one together with a model (`tasks.judged_imputation`).
    """
    inputs = {"groups": groups, "dataset": dataset, "features": features}
    return Recipe("imputed", impute_labels, imputer, inputs, seed=seed)


def choose_targets(context: BuildContext) -> Mapping[str, Any]:
    """The imputed labels to train on, and how their confidences are to be read."""
    imputed = Imputed.load(context.inputs["labels"].directory).targets(context.options)
    imputed.save(context.directory)
    return imputed.counts()


def targets_recipe(use: TargetOptions, imputed: Recipe) -> Recipe:
    """Imputed labels as a model learns from them; the imputed labels themselves where nothing is asked of them."""
    return imputed if use == TargetOptions() else Recipe("targets", choose_targets, use, {"labels": imputed})
