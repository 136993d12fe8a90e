"""Rank labels for the rows of a split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
from pydantic import Field, SerializeAsAny

from tasks.featurise import open_features
from xcore.artifacts import Recipe, Workshop
from xcore.components import Component
from xcore.data.readers.base import Split
from xcore.models.base import Model


class Prediction(Component):
    """What to predict, by which model family."""

    model: SerializeAsAny[Model]
    split: Split = Field("test", description="Split whose rows are ranked.")
    k: int = Field(5, ge=1, description="Labels kept for each row.")


def predict_labels(workshop: Workshop) -> Mapping[str, Any]:
    """The k best labels of every row."""
    options: Prediction = workshop.options
    X = open_features(workshop.inputs["features"]).X(options.split)
    top = options.model.load(workshop.inputs["model"].directory).predict_topk(X, options.k)
    pq.write_table(top.to_table(), workshop.directory / "predictions.parquet", compression="zstd")
    return {"rows": len(top), "k": options.k}


def predictions_recipe(model: Recipe, features: Recipe, split: Split, k: int) -> Recipe:
    """What a model says of a split."""
    if not isinstance(model.options, Model):
        raise TypeError(f"expected a recipe of a model, got one of {model.options}")
    options = Prediction(model=model.options, split=split, k=k)
    return Recipe("predictions", predict_labels, options, {"model": model, "features": features})
