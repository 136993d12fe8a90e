"""All flows, by name. Each is loaded only when it is asked for, so that a command pays for its own flow alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.params import FlowParams
    from xcore.artifacts import Recipe


@dataclass(frozen=True)
class FlowEntry:
    """A flow, its parameters and what plans it, each named as ``module:name``.

    A flow with effects beyond its result (a file elsewhere, an alias moved) is run even if the result is there.
    The flow also accepts presets of the flow with the parameters `preset_params_name`; options it lacks are ignored.
    """

    flow_name: str
    params_name: str
    planner_name: str
    has_effects: bool = False
    preset_params_name: str | None = None

    @property
    def flow(self) -> Callable[[Any], dict[str, Any]]:
        """The flow itself; this loads Prefect."""
        found: Callable[[Any], dict[str, Any]] = resolve_name(self.flow_name)
        return found

    @property
    def params(self) -> type[FlowParams]:
        """The schema of its parameters."""
        found: type[FlowParams] = resolve_name(self.params_name)
        return found

    @property
    def preset_of(self) -> type[FlowParams] | None:
        """The schema that its presets may be written for."""
        return resolve_name(self.preset_params_name) if self.preset_params_name else None

    def plan(self, params: FlowParams) -> Recipe:
        """The recipe of its result."""
        planned: Any = resolve_name(self.planner_name)(params)
        result: Recipe = getattr(planned, "evaluation", planned)
        return result


PIPELINE_PARAMS = "flows.params:PipelineParams"
FLOWS = {
    "ingest": FlowEntry(
        "flows.pipeline:ingest",
        "flows.params:IngestParams",
        "flows.plans:plan_ingest",
        preset_params_name=PIPELINE_PARAMS,
    ),
    "train": FlowEntry("flows.pipeline:train", "flows.params:TrainParams", "flows.plans:plan_train"),
    "pipeline": FlowEntry("flows.pipeline:pipeline", PIPELINE_PARAMS, "flows.plans:plan_pipeline"),
    "retrain": FlowEntry(
        "flows.retrain:retrain", "flows.retrain:RetrainParams", "flows.retrain:plan_retrain", has_effects=True
    ),
    "score": FlowEntry("flows.score:score", "flows.score:ScoreParams", "flows.score:plan_score", has_effects=True),
    "study": FlowEntry("flows.studies:study", "flows.study_params:StudyParams", "flows.studies:plan_study"),
    "simulate": FlowEntry("flows.studies:simulate", "flows.params:SimulateParams", "flows.studies:plan_simulate"),
}
