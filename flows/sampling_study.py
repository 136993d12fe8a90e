"""Learning curves of all methods of negative sampling side by side, as children of one MLflow run."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.params import SamplingStudyParams
from flows.plans import plan_data
from tasks.execution import make_result
from tasks.ingest import dataset_recipe
from tasks.race import curve_recipe, race_recipe
from xcore.artifacts import Recipe


def plan_sampling_study(params: SamplingStudyParams) -> Recipe:
    """A race of all contenders, each with the settings that did best on validation rows."""
    data = plan_data(dataset_recipe(params.data, params.seed), params.data.reader.form, params.text)
    curves = [
        curve_recipe(contender, params.model, params.tuning, params.race, data.form, data.inputs(), params.seed)
        for contender in params.contenders
    ]
    return race_recipe(params.contenders, curves)


@flow(name="sampling-study", flow_run_name="{params.run_name}")
def sampling_study(params: SamplingStudyParams) -> dict[str, Any]:
    """How fast and how far each way of sampling negatives learns."""
    return make_result(plan_sampling_study(params), "sampling-study", params)
