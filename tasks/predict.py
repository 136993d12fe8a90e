"""Rank labels for the rows of a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, SerializeAsAny

from tasks.training_data import open_rows
from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.models.base import Combining, Distributing, Fitted, Model, Shortlisting
from xcore.numeric.matrices import Float64, TopK
from xcore.training.data import Matrix, n_rows_of, rows_at

RECALL_ROWS = 1000
FILE = "predictions.parquet"
LOG_PROBABILITY = "log_probability"  # column of the file: of each row's one true label


class Prediction(Component):
    """What to predict, by which model family."""

    model: SerializeAsAny[Model]
    split: Split = Field("test", description="Split to predict.")
    k: int = Field(5, ge=1, description="Number of labels kept per row.")


def predict_labels(context: BuildContext) -> Mapping[str, Any]:
    """The k best labels of every row."""
    options: Prediction = context.options
    fitted = options.model.load(context.inputs["model"].directory)
    roles = [role for role in options.model.nested_models() if role in context.inputs]
    if roles and isinstance(fitted, Combining):
        depth = options.model.nested_depth(options.k)
        top = fitted.combine([_ranking(context.inputs[role], depth) for role in roles], options.k)
        return _written(top, context, options.k)
    X = open_rows(context.inputs, options.split, fitted.form).whole()
    top = fitted.predict_topk(X, options.k)
    known = _log_probability(fitted, X, options, context.inputs)
    return {**_written(top, context, options.k, known), **_recall(fitted, X, options.k)}


def _ranking(predictions: Artifact, depth: int | None) -> TopK:
    return TopK.from_table(pq.read_table(predictions.directory / FILE), depth)


def _written(top: TopK, context: BuildContext, k: int, known: Float64 | None = None) -> dict[str, Any]:
    table = top.to_table()
    if known is not None:
        table = table.append_column(LOG_PROBABILITY, pa.array(known))
    pq.write_table(table, context.directory / FILE, compression="zstd")
    return {"rows": len(top), "k": k}


def _log_probability(fitted: Fitted, X: Matrix, options: Prediction, inputs: Mapping[str, Artifact]) -> Float64 | None:
    """Log probability of each row's true label; None if a row has another number of labels, or the model has none.

    Only this looks at the truth of the split. The ranking does not.
    """
    if not (options.model.is_distribution and isinstance(fitted, Distributing)):
        return None
    truth = Dataset(inputs["dataset"].directory).Y(options.split)
    return fitted.log_probability(X, truth.indices) if (np.diff(truth.indptr) == 1).all() else None


def _recall(fitted: Fitted, X: Matrix, k: int) -> dict[str, float]:
    """How many of the exact best labels a model finds that does not score all of them, on rows at even distances."""
    if not isinstance(fitted, Shortlisting):
        return {}
    n_rows = n_rows_of(X)
    rows = np.arange(0, n_rows, max(1, n_rows // RECALL_ROWS))
    recall = fitted.shortlist_recall(rows_at(X, rows), k)
    return {} if recall is None else {"shortlist_recall": recall}


def predictions_recipe(model: Recipe, split: Split, k: int) -> Recipe:
    """Predictions for a split of the dataset that the model was trained on.

    Of a model whose answer follows from those of the models inside it, theirs are steps of their own: rows that were
    encoded for them once are not encoded again.
    """
    if not isinstance(model.options, Model):
        raise TypeError(f"expected a recipe of a model, got one of {model.options}")
    options = Prediction(model=model.options, split=split, k=k)
    depth = model.options.nested_depth(k)
    nested = [role for role in model.options.nested_models() if role in model.inputs]
    if nested and depth is not None:
        rankings = {
            role: replace(predictions_recipe(model.inputs[role], split, depth), title=f"predict {role}")
            for role in nested
        }
        return Recipe("predictions", predict_labels, options, {"model": model} | rankings)
    rows = {name: model.inputs[name] for name in ("features", "dataset", "vocabulary") if name in model.inputs}
    if "features" in rows:
        rows = {"features": rows["features"]} | ({"dataset": rows["dataset"]} if model.options.is_distribution else {})
    return Recipe("predictions", predict_labels, options, {"model": model} | rows)
