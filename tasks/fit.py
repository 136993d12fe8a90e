"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from tasks.stages import stage_recipes
from tasks.training_data import fit_context, open_training_data
from xcore.artifacts import BuildContext, Recipe
from xcore.models.base import Model, choose_form
from xcore.training.data import RowForm


def fit_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split: on its own labels or on imputed ones; a killed training goes on where it was."""
    model: Model = context.options
    form = choose_form(type(model), open_features(context.inputs["features"]).form)
    stages = {role: declared.options for role, declared in model.stages(form).items()}
    data = open_training_data(context.inputs, form, model.wants, stages)
    fitted = model.fit(data, fit_context(context))
    fitted.save(context.directory)
    positives = data.Y.nnz
    return {"rows": data.Y.shape[0], "features": fitted.n_features, "labels": fitted.n_labels, "positives": positives}


def model_recipe(model: Model, form: RowForm, data: Mapping[str, Recipe], seed: int) -> Recipe:
    """A model trained on the rows, labels and vocabulary that `data` names, with the stages that it declares."""
    taken = choose_form(type(model), form)
    inputs = {name: recipe for name, recipe in data.items() if name != "vocabulary" or model.wants & {"labels"}}
    return Recipe("model", fit_model, model, inputs | stage_recipes(model, taken, data, seed), seed=seed)
