"""Give the labels of groups to single rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import SerializeAsAny

from tasks.featurise import open_features
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.grouping.groups import Groups
from xcore.imputation.auto import Auto
from xcore.imputation.base import Imputer, quality_against_truth
from xcore.imputation.imputed import Imputed, TargetOptions
from xcore.models.base import Model
from xcore.numeric.matrices import CSR, TopK
from xcore.training.context import FitContext
from xcore.training.data import TrainingData


class JudgedImputer(Component):
    """The imputer that chooses, and the model that judges its trials."""

    kind: Literal["auto"] = "auto"
    imputer: Auto
    model: SerializeAsAny[Model]


@dataclass(frozen=True)
class ModelSolver:
    """A model as the judge of imputations."""

    model: Model

    @property
    def two_readings(self) -> bool:
        return self.model.two_readings

    def best_labels(self, X: CSR, imputed: Imputed, rows: CSR, k: int) -> TopK:
        """Train on imputed labels and rank the labels of other rows. The seed is the same for all imputations."""
        data = TrainingData.of(X, imputed.Y, reading=imputed.reading)
        return self.model.fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(rows, k)


def impute_labels(context: BuildContext) -> Mapping[str, Any]:
    """Labels of rows with a confidence each, and how good they are where the truth is known."""
    dataset = Dataset(context.inputs["dataset"].directory)
    X = open_features(context.inputs["features"]).sparse("train")
    groups = Groups.load(context.inputs["groups"].directory)
    if isinstance(context.options, JudgedImputer):
        solver = ModelSolver(context.options.model)
        imputed = context.options.imputer.impute_for(solver, X, groups, context.rng, context.report)
    else:
        imputed = context.options.impute(X, groups, context.rng, context.report)
    imputed.save(context.directory)
    truth = dataset.own_labels("train")
    quality = quality_against_truth(imputed, truth) if truth.nnz else {}
    (context.directory / "quality.json").write_text(json.dumps(quality, indent=1, sort_keys=True))
    return {**imputed.counts(), **{f"truth_{name}": value for name, value in quality.items()}}


def imputed_recipe(
    imputer: Imputer, groups: Recipe, dataset: Recipe, features: Recipe, seed: int, model: Model | None = None
) -> Recipe:
    """Labels of a dataset's training rows, imputed from the labels of their groups; `model` is who learns from them."""
    inputs = {"groups": groups, "dataset": dataset, "features": features}
    options: Component = imputer
    if isinstance(imputer, Auto) and model is not None and can_judge(model):
        options = JudgedImputer(imputer=imputer, model=model)
    return Recipe("imputed", impute_labels, options, inputs, seed=seed)


def can_judge(model: Model) -> bool:
    """Whether a model can be trained on features alone, as the trials of `auto` do."""
    return "sparse" in model.takes and not model.nested_models() and "labels" not in model.wants


def choose_targets(context: BuildContext) -> Mapping[str, Any]:
    """The imputed labels to train on, and how their confidences are to be read."""
    imputed = Imputed.load(context.inputs["labels"].directory).targets(context.options)
    imputed.save(context.directory)
    return imputed.counts()


def targets_recipe(use: TargetOptions, imputed: Recipe) -> Recipe:
    """Imputed labels as a model learns from them; the imputed labels themselves where nothing is asked of them."""
    return imputed if use == TargetOptions() else Recipe("targets", choose_targets, use, {"labels": imputed})
