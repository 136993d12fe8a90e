"""From files to a tracked, evaluated model."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.params import IngestParams, PipelineParams, TrainParams
from flows.plans import plan_ingest, plan_pipeline, plan_train
from tasks.execution import completed, make_result


@flow(name="ingest", flow_run_name="{params.run_name}")
def ingest(params: IngestParams) -> Any:
    """Read files, validate them and keep them as a dataset."""
    return completed(make_result(plan_ingest(params), "ingest", params))


@flow(name="train", flow_run_name="{params.run_name}")
def train(params: TrainParams) -> Any:
    """Train, predict and evaluate on a dataset that is in the store."""
    return completed(make_result(plan_train(params).evaluation, "train", params))


@flow(name="pipeline", flow_run_name="{params.run_name}")
def pipeline(params: PipelineParams) -> Any:
    """Files in, evaluated model out: ingest, featurise, group, impute, train, predict, evaluate."""
    return completed(make_result(plan_pipeline(params).evaluation, "pipeline", params))
