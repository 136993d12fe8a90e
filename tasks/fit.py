"""Train a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.featurise import features_recipe, vocabulary_recipe
from tasks.stages import stage_recipes
from tasks.training_data import fit_context, forms_of, open_training_data, row_inputs
from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.data.dataset import Dataset
from xcore.models.bags import EXPLAINED_FILE, ExplainsBags
from xcore.models.base import Fitted, Model, NestedModel
from xcore.numeric.matrices import NO_LABEL
from xcore.text.family import load_text
from xcore.training.data import PreparedStage, RowForm, TrainingData, rows_at

EXPLAINED_BAGS, EXPLAINED_LABELS = 200, 5  # at most about so many bags, at even distances
MEASURED_ROWS, MEASURED_LABELS = 1000, (1, 3, 5)


def fit_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split: on its own labels or on imputed ones; a killed fit continues from its checkpoint."""
    model: Model = context.options
    form = model.form_for(forms_of(context.inputs))
    stages = {role: declared.options for role, declared in model.stages(form).items()}
    data = open_training_data(context.inputs, form, model.wants, stages)
    notes = list[str]()
    surroundings = replace(fit_context(context), note=notes.append)
    fitted = model.fit(_with_nested_models(data, model, context.inputs), surroundings)
    fitted.save(context.directory)
    sizes: dict[str, Any] = {"rows": data.Y.shape[0], "features": fitted.n_features, "labels": fitted.n_labels}
    sizes |= {"notes": notes} if notes else {}
    if data.bags is None:
        return {**sizes, "positives": data.Y.nnz, **measure_training_rows(fitted, data)}
    bags = data.known_bags()
    explained = explain_bags(fitted, data, context) if isinstance(fitted, ExplainsBags) else {}
    return {**sizes, "bags": bags.Y.shape[0], "positives": bags.Y.nnz, **explained}


def measure_training_rows(fitted: Fitted, data: TrainingData) -> dict[str, float]:
    """Precision at k on at most 1,000 training rows with labels, at even distances, by the labels that were learnt."""
    known = np.flatnonzero(np.diff(data.Y.indptr))
    if not len(known):
        return {}
    rows = known[:: -(-len(known) // MEASURED_ROWS)]
    offered = fitted.predict_topk(rows_at(data.X, rows), max(MEASURED_LABELS)).labels
    learnt = data.Y[rows]
    learnt = learnt.indices + np.repeat(np.arange(len(rows)), np.diff(learnt.indptr)) * data.n_labels
    hits = np.isin(offered + np.arange(len(rows))[:, None] * data.n_labels, learnt) & (offered != NO_LABEL)
    return {f"train_precision_at_{k}": float(hits[:, :k].sum() / (k * len(rows))) for k in MEASURED_LABELS}


def explain_bags(fitted: ExplainsBags, data: TrainingData, context: BuildContext) -> dict[str, float]:
    """Write which row explains the best labels of some training bags; how often it is right, if the truth is known."""
    bags = data.known_bags()
    chosen = np.arange(0, bags.Y.shape[0], max(1, bags.Y.shape[0] // EXPLAINED_BAGS))
    explained = fitted.explain(data.X, bags.members[chosen], min(EXPLAINED_LABELS, data.n_labels))
    pq.write_table(explained.to_table(chosen), context.directory / EXPLAINED_FILE)
    truth = Dataset(context.inputs["dataset"].directory).own_labels("train")
    precision = explained.precision(bags.Y[chosen], truth) if truth.nnz else None
    return {} if precision is None else {"explained_precision": precision}


def _with_nested_models(data: TrainingData, model: Model, inputs: Mapping[str, Artifact]) -> TrainingData:
    """The data with the models that `model` holds, and what makes their rows of texts."""
    for role, nested in model.nested_models().items():
        data = data.with_stage(role, PreparedStage(nested.model.load(inputs[role].directory)))
        if _text_role(role) in inputs:
            text = load_text(inputs[_text_role(role)].directory)
            data = data.with_stage(_text_role(role), PreparedStage(text))
    return data


def model_recipe(model: Model, forms: Sequence[RowForm], data: Mapping[str, Recipe], seed: int) -> Recipe:
    """A model trained on rows that can be had in some forms, with the stages and the models that it declares.

    `data` holds the recipes of the dataset, its features, its vocabulary, imputed labels and groups, if they exist.
    """
    form = model.form_for(forms)
    wished = {"vocabulary": "labels" in model.wants and form != "text", "groups": "bags" in model.wants}
    names = ["dataset", "labels", *(name for name, is_wished in wished.items() if is_wished)]
    inputs = {name: data[name] for name in names if name in data} | row_inputs(form, data)
    made = stage_recipes(model, form, data, seed) | _nested_recipes(model, forms, form, data, seed)
    return Recipe("model", fit_model, model, inputs | made, seed=seed)


def _nested_recipes(
    model: Model, forms: Sequence[RowForm], form: RowForm, data: Mapping[str, Recipe], seed: int
) -> dict[str, Recipe]:
    """The models inside a model, each as it would be trained alone; of a model of texts, also what makes their rows."""
    made: dict[str, Recipe] = {}
    for role, nested in model.nested_models().items():
        own_forms, own_data = _rows_of(nested, forms, data)
        recipe = model_recipe(nested.model, own_forms, own_data, seed + nested.seed)
        made[role] = replace(recipe, title=f"fit {role.replace('-', ' ')}")
        if form == "text" and nested.model.form_for(own_forms) != "text":
            made[_text_role(role)] = own_data["vocabulary"]
    return made


def _rows_of(
    nested: NestedModel, forms: Sequence[RowForm], data: Mapping[str, Recipe]
) -> tuple[Sequence[RowForm], Mapping[str, Recipe]]:
    """The forms of a nested model's rows, and the recipes that make them."""
    if nested.text is None:
        return forms, data
    vocabulary = vocabulary_recipe(data["dataset"], nested.text)
    features = features_recipe(data["dataset"], vocabulary, nested.text)
    return (nested.text.makes, "tokens", "text"), {**data, "vocabulary": vocabulary, "features": features}


def _text_role(role: str) -> str:
    return f"{role}-text"
