"""All flows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flows.params import (
    FlowParams,
    IngestParams,
    PipelineParams,
    SimulateParams,
    TrainParams,
)
from flows.pipeline import ingest, pipeline, plan_ingest, plan_pipeline, plan_train, train
from flows.retrain import RetrainParams, plan_retrain, retrain
from flows.score import ScoreParams, plan_score, score
from flows.studies import plan_simulate, plan_study, simulate, study
from flows.study_params import StudyParams
from xcore.artifacts import Recipe


@dataclass(frozen=True)
class FlowEntry:
    """A flow, its parameters, and the recipe of its result.

    A flow with effects beyond its result (a file elsewhere, an alias moved) is run even if the result is there.
    `preset_of` are the parameters of a flow whose presets this one takes too, as far as they concern it.
    """

    params: type[FlowParams]
    plan: Callable[[Any], Recipe]
    flow: Callable[[Any], dict[str, Any]]
    has_effects: bool = False
    preset_of: type[FlowParams] | None = None


FLOWS = {
    "ingest": FlowEntry(IngestParams, plan_ingest, ingest, preset_of=PipelineParams),
    "train": FlowEntry(TrainParams, lambda params: plan_train(params).evaluation, train),
    "pipeline": FlowEntry(PipelineParams, lambda params: plan_pipeline(params).evaluation, pipeline),
    "retrain": FlowEntry(RetrainParams, plan_retrain, retrain, has_effects=True),
    "score": FlowEntry(ScoreParams, plan_score, score, has_effects=True),
    "study": FlowEntry(StudyParams, plan_study, study),
    "simulate": FlowEntry(SimulateParams, plan_simulate, simulate),
}
