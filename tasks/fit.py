"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from tasks.training_labels import training_labels
from xcore.artifacts import BuildContext, Recipe
from xcore.models.base import Model, TrainingData


def fit_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split: on its own labels, or on imputed ones where there are such."""
    X = open_features(context.inputs["features"]).sparse("train")
    data = TrainingData(X, training_labels(context))
    fitted = context.options.fit(data, context.rng, context.report)
    fitted.save(context.directory)
    return {"rows": X.shape[0], "features": fitted.n_features, "labels": fitted.n_labels, "positives": data.Y.nnz}


def model_recipe(model: Model, dataset: Recipe, features: Recipe, labels: Recipe | None, seed: int) -> Recipe:
    """A model trained on a dataset, with imputed labels where they are given."""
    inputs = {"dataset": dataset, "features": features} | ({"labels": labels} if labels else {})
    return Recipe("model", fit_model, model, inputs, seed=seed)
