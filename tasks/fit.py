"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from tasks.labels import training_labels
from xcore.artifacts import Recipe, Workshop
from xcore.models.base import Model, TrainingData


def fit_model(workshop: Workshop) -> Mapping[str, Any]:
    """Train on the training split: on its own labels, or on imputed ones where there are such."""
    X = open_features(workshop.inputs["features"]).X("train")
    data = TrainingData(X, training_labels(workshop))
    fitted = workshop.options.fit(data, workshop.rng, workshop.report)
    fitted.save(workshop.directory)
    return {"rows": X.shape[0], "features": fitted.n_features, "labels": fitted.n_labels, "positives": data.Y.nnz}


def model_recipe(model: Model, dataset: Recipe, features: Recipe, labels: Recipe | None, seed: int) -> Recipe:
    """A model trained on a dataset, with imputed labels where they are given."""
    inputs = {"dataset": dataset, "features": features} | ({"labels": labels} if labels else {})
    return Recipe("model", fit_model, model, inputs, seed=seed)
