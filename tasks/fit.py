"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.stages import stage_recipes
from tasks.training_data import fit_context, forms_of, open_training_data, row_inputs
from xcore.artifacts import BuildContext, Recipe
from xcore.models.base import Model, choose_form
from xcore.training.data import RowForm


def fit_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split: on its own labels or on imputed ones; a killed fit continues from its checkpoint."""
    model: Model = context.options
    form = choose_form(type(model), forms_of(context.inputs))
    stages = {role: declared.options for role, declared in model.stages(form).items()}
    data = open_training_data(context.inputs, form, model.wants, stages)
    fitted = model.fit(data, fit_context(context))
    fitted.save(context.directory)
    positives = data.Y.nnz
    return {"rows": data.Y.shape[0], "features": fitted.n_features, "labels": fitted.n_labels, "positives": positives}


def model_recipe(model: Model, forms: Sequence[RowForm], data: Mapping[str, Recipe], seed: int) -> Recipe:
    """A model trained on rows that can be had in some forms, with the stages that it declares.

    `data` holds the recipes of the dataset, its features, its vocabulary, imputed labels and groups, if they exist.
    """
    form = choose_form(type(model), forms)
    wished = {"vocabulary": "labels" in model.wants, "groups": "bags" in model.wants}
    names = ["dataset", "labels", *(name for name, is_wished in wished.items() if is_wished)]
    inputs = {name: data[name] for name in names if name in data} | row_inputs(form, data)
    return Recipe("model", fit_model, model, inputs | stage_recipes(model, form, data, seed), seed=seed)
