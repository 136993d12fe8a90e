"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.stages import stage_recipes
from tasks.training_data import fit_context, forms_of, open_training_data, row_inputs
from xcore.artifacts import BuildContext, Recipe
from xcore.data.dataset import Dataset
from xcore.models.bags import EXPLAINED_FILE, ExplainsBags
from xcore.models.base import Model, choose_form
from xcore.training.data import RowForm, TrainingData

EXPLAINED_BAGS, EXPLAINED_LABELS = 200, 5  # at most about so many bags, at even distances


def fit_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split: on its own labels or on imputed ones; a killed fit continues from its checkpoint."""
    model: Model = context.options
    form = choose_form(type(model), forms_of(context.inputs))
    stages = {role: declared.options for role, declared in model.stages(form).items()}
    data = open_training_data(context.inputs, form, model.wants, stages)
    fitted = model.fit(data, fit_context(context))
    fitted.save(context.directory)
    sizes = {"rows": data.Y.shape[0], "features": fitted.n_features, "labels": fitted.n_labels}
    if data.bags is None:
        return {**sizes, "positives": data.Y.nnz}
    bags = data.known_bags()
    explained = explain_bags(fitted, data, context) if isinstance(fitted, ExplainsBags) else {}
    return {**sizes, "bags": bags.Y.shape[0], "positives": bags.Y.nnz, **explained}


def explain_bags(fitted: ExplainsBags, data: TrainingData, context: BuildContext) -> dict[str, float]:
    """Write which row explains the best labels of some training bags; how often it is right, if the truth is known."""
    bags = data.known_bags()
    chosen = np.arange(0, bags.Y.shape[0], max(1, bags.Y.shape[0] // EXPLAINED_BAGS))
    explained = fitted.explain(data.X, bags.members[chosen], min(EXPLAINED_LABELS, data.n_labels))
    pq.write_table(explained.to_table(chosen), context.directory / EXPLAINED_FILE)
    truth = Dataset(context.inputs["dataset"].directory).own_labels("train")
    precision = explained.precision(bags.Y[chosen], truth) if truth.nnz else None
    return {} if precision is None else {"explained_precision": precision}


def model_recipe(model: Model, forms: Sequence[RowForm], data: Mapping[str, Recipe], seed: int) -> Recipe:
    """A model trained on rows that can be had in some forms, with the stages that it declares.

    `data` holds the recipes of the dataset, its features, its vocabulary, imputed labels and groups, if they exist.
    """
    form = choose_form(type(model), forms)
    wished = {"vocabulary": "labels" in model.wants, "groups": "bags" in model.wants}
    names = ["dataset", "labels", *(name for name, is_wished in wished.items() if is_wished)]
    inputs = {name: data[name] for name in names if name in data} | row_inputs(form, data)
    return Recipe("model", fit_model, model, inputs | stage_recipes(model, form, data, seed), seed=seed)
