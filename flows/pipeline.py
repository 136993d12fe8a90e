"""From files to a tracked, evaluated model."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.params import IngestParams, LearningParams, PipelineParams, TrainParams
from flows.plans import plan_evaluation
from tasks.execution import kept_dataset, make_result
from tasks.featurise import features_recipe
from tasks.group import groups_recipe
from tasks.impute import imputed_recipe
from tasks.ingest import dataset_recipe
from xcore.artifacts import Recipe
from xcore.data.readers.base import Form
from xcore.grouping.given import GivenGroups


def plan_ingest(params: IngestParams) -> Recipe:
    """A dataset."""
    return dataset_recipe(params.data, params.seed)


def plan_train(params: TrainParams) -> Recipe:
    """An evaluation on a dataset that is in the store."""
    recipe, dataset = kept_dataset(params.dataset)
    return _plan_learning(recipe, dataset.form, dataset.groups() is not None, params)


def plan_pipeline(params: PipelineParams) -> Recipe:
    """An evaluation, from files on."""
    dataset = dataset_recipe(params.data, params.seed)
    return _plan_learning(dataset, params.data.reader.form, params.data.has_groups, params)


def _plan_learning(dataset: Recipe, form: Form, has_groups: bool, params: LearningParams) -> Recipe:
    features = features_recipe(dataset, form, params.text)
    labels = _plan_labels(dataset, features, has_groups, params)
    return plan_evaluation(params.model, dataset, features, labels, params.evaluation, params.seed)


def _plan_labels(dataset: Recipe, features: Recipe, has_groups: bool, params: LearningParams) -> Recipe | None:
    """Imputed labels where labels belong to groups, or are made to; None where rows have their own."""
    grouper = params.grouping or (GivenGroups() if has_groups else None)
    if grouper is None:
        return None
    groups = groups_recipe(grouper, dataset, features, params.seed)
    return imputed_recipe(params.imputer, groups, dataset, features, params.seed)


@flow(name="ingest", flow_run_name="{params.run_name}")
def ingest(params: IngestParams) -> dict[str, Any]:
    """Read files, validate them and keep them as a dataset."""
    return make_result(plan_ingest(params), "ingest", params)


@flow(name="train", flow_run_name="{params.run_name}")
def train(params: TrainParams) -> dict[str, Any]:
    """Train, predict and evaluate on a dataset that is in the store."""
    return make_result(plan_train(params), "train", params)


@flow(name="pipeline", flow_run_name="{params.run_name}")
def pipeline(params: PipelineParams) -> dict[str, Any]:
    """Files in, evaluated model out: ingest, featurise, group, impute, train, predict, evaluate."""
    return make_result(plan_pipeline(params), "pipeline", params)
