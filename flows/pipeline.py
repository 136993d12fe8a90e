"""From files to a tracked, evaluated model."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.params import IngestParams, LearningParams, PipelineParams, TrainParams
from flows.plans import LearningPlan, plan_data, plan_imputation, plan_learning
from tasks.execution import kept_dataset, make_result
from tasks.ingest import dataset_recipe
from xcore.artifacts import Recipe
from xcore.data.readers.base import Form
from xcore.grouping.given import GivenGroups


def plan_ingest(params: IngestParams) -> Recipe:
    """A dataset."""
    return dataset_recipe(params.data, params.seed)


def plan_train(params: TrainParams) -> LearningPlan:
    """An evaluation on a dataset that is in the store."""
    recipe, dataset = kept_dataset(params.dataset)
    dataset.need_split(params.evaluation.split, "evaluation.split")
    return _plan(recipe, dataset.form, dataset.groups() is not None, params)


def plan_pipeline(params: PipelineParams, dataset: Recipe | None = None) -> LearningPlan:
    """An evaluation, from files on; a dataset that was planned before need not have its files read again for its id."""
    params.data.need_split(params.evaluation.split, "evaluation.split")
    dataset = dataset or dataset_recipe(params.data, params.seed)
    return _plan(dataset, params.data.reader.form, params.data.has_groups, params)


def _plan(dataset: Recipe, form: Form, has_groups: bool, params: LearningParams) -> LearningPlan:
    data = plan_data(dataset, form, params.text)
    grouper = params.grouping or (GivenGroups() if has_groups else None)
    if grouper is not None:
        data = plan_imputation(data, grouper, params.imputer, params.seed)
    return plan_learning(params.model, data, params.evaluation, params.seed)


@flow(name="ingest", flow_run_name="{params.run_name}")
def ingest(params: IngestParams) -> dict[str, Any]:
    """Read files, validate them and keep them as a dataset."""
    return make_result(plan_ingest(params), "ingest", params)


@flow(name="train", flow_run_name="{params.run_name}")
def train(params: TrainParams) -> dict[str, Any]:
    """Train, predict and evaluate on a dataset that is in the store."""
    return make_result(plan_train(params).evaluation, "train", params)


@flow(name="pipeline", flow_run_name="{params.run_name}")
def pipeline(params: PipelineParams) -> dict[str, Any]:
    """Files in, evaluated model out: ingest, featurise, group, impute, train, predict, evaluate."""
    return make_result(plan_pipeline(params).evaluation, "pipeline", params)
