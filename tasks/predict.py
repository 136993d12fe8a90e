"""Rank labels for the rows of a split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field, SerializeAsAny

from tasks.training_data import open_rows
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.readers.base import Split
from xcore.models.base import Fitted, Model, Shortlisting
from xcore.training.data import Matrix

RECALL_ROWS = 1000


class Prediction(Component):
    """What to predict, by which model family."""

    model: SerializeAsAny[Model]
    split: Split = Field("test", description="Split to predict.")
    k: int = Field(5, ge=1, description="Number of labels kept per row.")


def predict_labels(context: BuildContext) -> Mapping[str, Any]:
    """The k best labels of every row."""
    options: Prediction = context.options
    fitted = options.model.load(context.inputs["model"].directory)
    X = open_rows(context.inputs, options.split, fitted.form).whole()
    top = fitted.predict_topk(X, options.k)
    pq.write_table(top.to_table(), context.directory / "predictions.parquet", compression="zstd")
    return {"rows": len(top), "k": options.k, **_recall(fitted, X, options.k)}


def _recall(fitted: Fitted, X: Matrix, k: int) -> dict[str, float]:
    """How many of the exact best labels a model finds that does not score all of them, on rows at even distances."""
    if not isinstance(fitted, Shortlisting):
        return {}
    rows = np.arange(0, X.shape[0], max(1, X.shape[0] // RECALL_ROWS))
    recall = fitted.shortlist_recall(X[rows], k)
    return {} if recall is None else {"shortlist_recall": recall}


def predictions_recipe(model: Recipe, split: Split, k: int) -> Recipe:
    """Predictions for a split of the dataset that the model was trained on."""
    if not isinstance(model.options, Model):
        raise TypeError(f"expected a recipe of a model, got one of {model.options}")
    options = Prediction(model=model.options, split=split, k=k)
    rows = {name: model.inputs[name] for name in ("features", "dataset", "vocabulary") if name in model.inputs}
    if "features" in rows:
        rows = {"features": rows["features"]}
    return Recipe("predictions", predict_labels, options, {"model": model} | rows)
