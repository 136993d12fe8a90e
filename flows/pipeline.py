"""From files to a tracked, evaluated model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows.params import IngestParams, PipelineParams, TrainParams
from tasks.evaluate import evaluation_recipe
from tasks.featurise import features_recipe
from tasks.fit import model_recipe
from tasks.ingest import dataset_recipe
from tasks.predict import predictions_recipe
from tasks.running import kept_dataset, make_result
from xcore.artifacts import Recipe
from xcore.components import Component


def plan_ingest(params: IngestParams) -> Recipe:
    """A dataset."""
    return dataset_recipe(params.data, params.seed)


def plan_train(params: TrainParams) -> Recipe:
    """An evaluation on a dataset that is in the store."""
    dataset, form = kept_dataset(params.dataset)
    return _plan_learning(dataset, form, params)


def plan_pipeline(params: PipelineParams) -> Recipe:
    """An evaluation, from files on."""
    return _plan_learning(dataset_recipe(params.data, params.seed), params.data.form, params)


def _plan_learning(dataset: Recipe, form: str, params: TrainParams | PipelineParams) -> Recipe:
    features = features_recipe(dataset, form, params.text)
    model = model_recipe(params.model, dataset, features, params.seed)
    predictions = predictions_recipe(model, features, params.evaluation.split, max(params.evaluation.ks))
    return evaluation_recipe(predictions, dataset, params.evaluation, params.seed)


@flow(name="ingest")
def ingest(params: IngestParams) -> dict[str, Any]:
    """Read files, validate them and keep them as a dataset."""
    return make_result(plan_ingest(params), "ingest", params)


@flow(name="train")
def train(params: TrainParams) -> dict[str, Any]:
    """Train, predict and evaluate on a dataset that is in the store."""
    return make_result(plan_train(params), "train", params)


@flow(name="pipeline")
def pipeline(params: PipelineParams) -> dict[str, Any]:
    """Files in, evaluated model out: ingest, featurise, train, predict, evaluate."""
    return make_result(plan_pipeline(params), "pipeline", params)


@dataclass(frozen=True)
class FlowEntry:
    """A flow, its parameters, and the recipe of its result."""

    params: type[Component]
    plan: Callable[[Any], Recipe]
    flow: Callable[[Any], dict[str, Any]]


FLOWS = {
    "ingest": FlowEntry(IngestParams, plan_ingest, ingest),
    "train": FlowEntry(TrainParams, plan_train, train),
    "pipeline": FlowEntry(PipelineParams, plan_pipeline, pipeline),
}
