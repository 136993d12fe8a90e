"""All flows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flows.params import (
    AggregateStudyParams,
    FlowParams,
    IngestParams,
    PipelineParams,
    SimulateParams,
    TrainParams,
)
from flows.pipeline import ingest, pipeline, plan_ingest, plan_pipeline, plan_train, train
from flows.study import aggregate_study, plan_aggregate_study, plan_simulate, simulate
from xcore.artifacts import Recipe


@dataclass(frozen=True)
class FlowEntry:
    """A flow, its parameters, and the recipe of its result."""

    params: type[FlowParams]
    plan: Callable[[Any], Recipe]
    flow: Callable[[Any], dict[str, Any]]


FLOWS = {
    "ingest": FlowEntry(IngestParams, plan_ingest, ingest),
    "train": FlowEntry(TrainParams, plan_train, train),
    "pipeline": FlowEntry(PipelineParams, plan_pipeline, pipeline),
    "aggregate-study": FlowEntry(AggregateStudyParams, plan_aggregate_study, aggregate_study),
    "simulate": FlowEntry(SimulateParams, plan_simulate, simulate),
}
