"""Studies: many runs of the pipeline side by side, as children of one MLflow run."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.params import AggregateStudyParams, SimulateParams
from flows.plans import DataPlan, plan_data, plan_imputation, plan_learning
from tasks.execution import make_result
from tasks.ingest import dataset_recipe
from tasks.simulate import simulation_recipe
from tasks.study import study_recipe
from xcore.artifacts import Recipe
from xcore.components import label_of
from xcore.studies.table import ORACLE, Cell


def plan_aggregate_study(params: AggregateStudyParams) -> Recipe:
    """A table of every grouping with every imputer, for all seeds, and the oracle that sees the true labels."""
    data = plan_data(dataset_recipe(params.data, params.seed), params.data.reader.form, params.text)

    def evaluated(own: DataPlan, seed: int) -> Recipe:
        return plan_learning(params.model, own, params.evaluation, seed).evaluation

    cells = [(Cell(grouping="", method=ORACLE, seed=seed), evaluated(data, seed)) for seed in params.seeds]
    for seed in params.seeds:
        for grouper in params.groupings:
            label = label_of(grouper) if grouper.level is None else f"{grouper.kind} {grouper.level:g}"
            named = {"grouping": label, "family": grouper.kind, "level": grouper.level, "seed": seed}
            for imputer in params.imputers:
                imputed = plan_imputation(data, grouper, imputer, seed)
                cells.append((Cell(method=label_of(imputer), **named), evaluated(imputed, seed)))
    return study_recipe(cells)


def plan_simulate(params: SimulateParams) -> Recipe:
    """A simulation of the theory."""
    return simulation_recipe(params.simulation, params.seed)


@flow(name="aggregate-study", flow_run_name="{params.run_name}")
def aggregate_study(params: AggregateStudyParams) -> dict[str, Any]:
    """What it costs to know labels only for groups, and which imputer pays least."""
    return make_result(plan_aggregate_study(params), "aggregate-study", params)


@flow(name="simulate", flow_run_name="{params.run_name}")
def simulate(params: SimulateParams) -> dict[str, Any]:
    """The simulations behind EAGLE's theory."""
    return make_result(plan_simulate(params), "simulate", params)
