"""Studies: many runs of the pipeline side by side, as children of one MLflow run; and simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows.factors import Factors, Values, combinations, params_with, place_of, value_at
from flows.params import PipelineParams, SimulateParams
from flows.plans import LearningPlan, plan_pipeline
from flows.study_params import StudyParams, Tuning
from tasks.curves import curve_recipe
from tasks.execution import make_result
from tasks.ingest import dataset_recipe
from tasks.simulate import simulation_recipe
from tasks.study import study_recipe, tabulate_curves, tabulate_study
from tasks.tracked_steps import Child
from xcore.artifacts import Recipe
from xcore.components import Component
from xcore.errors import ConfigError
from xcore.models.negative_sampling import NegativeSampling
from xcore.studies.design import Cell, Level, StudyDesign

Levels = Mapping[str, list[Level]]


@dataclass(frozen=True)
class PlannedCell:
    """Combinations of values that come to the same results, and these results, one for each seed."""

    combinations: list[dict[str, Any]]
    results: list[Recipe]


def plan_study(params: StudyParams) -> Recipe:
    """A table of all cells."""
    return _plan(params)[0]


def _plan(params: StudyParams) -> tuple[Recipe, dict[str, Child]]:
    """The study, and how each cell's result is tracked."""
    levels = params.levels()
    planned = _plan_cells(params, levels)
    cells: list[Cell] = []
    children: dict[str, Child] = {}
    for each, shown in zip(planned, _shown_levels(planned, levels, params), strict=True):
        values, reference = each.combinations[0], _reference(each, planned, params)
        tuned = tuple(path.removeprefix("model.") for path in params.grid_of(_labels(values, levels, params)))
        for number, (seed, result) in enumerate(zip(params.all_seeds, each.results, strict=True)):
            at = None if reference is None else reference * len(params.all_seeds) + number
            cells.append(Cell(levels=shown, seed=seed, reference=at, tuned=tuned))
            children[result.id] = Child("-".join(cells[-1].labels), _tracked(values, cells[-1], params))
    design = StudyDesign(
        factors=tuple(params.factors), cells=tuple(cells), metrics=params.shown_metrics, plot=params.plot
    )
    results = [result for each in planned for result in each.results]
    return study_recipe(design, results, tabulate_curves if params.curve else tabulate_study), children


def _plan_cells(params: StudyParams, levels: Levels) -> list[PlannedCell]:
    """The cells in the order of the combinations; those with the same results are one."""
    found: dict[tuple[str, ...], PlannedCell] = {}
    datasets: dict[str, Recipe] = {}
    for values in combinations(params.factors):
        grid = params.grid_of(_labels(values, levels, params))
        results = [_plan_result(params, values, grid, seed, datasets) for seed in params.all_seeds]
        cell = found.setdefault(tuple(result.id for result in results), PlannedCell([], results))
        cell.combinations.append(values)
    return list(found.values())


def _plan_result(params: StudyParams, values: Values, grid: Factors, seed: int, datasets: dict[str, Recipe]) -> Recipe:
    """What `pipeline` makes with these parameters, or the learning curve of its model."""
    cell = params_with(params, values, "factors", seed)
    if params.curve is None:
        return _plan_pipeline(cell, datasets).evaluation
    cell.data.need_split(params.curve.split, "curve.split")
    if grid and params.tuning:
        cell.data.need_split(params.tuning.split, "tuning.split")
    candidates = [params_with(cell, settings, "tuning.grids") for settings in combinations(grid)]
    models = [candidate.model for candidate in candidates if isinstance(candidate.model, NegativeSampling)]
    inputs = [_plan_pipeline(candidate, datasets).model.inputs for candidate in candidates]
    if any(_ids(other) != _ids(inputs[0]) for other in inputs):
        raise ConfigError(
            f"tuning.grids: {', '.join(grid)} change the embedding or the sampler, which all candidates share: "
            "set such an option in the study's model, or make it a factor"
        )
    return curve_recipe(models, inputs[0], params.curve, params.tuning or Tuning(), seed)


def _plan_pipeline(params: PipelineParams, datasets: dict[str, Recipe]) -> LearningPlan:
    """As `plan_pipeline`, but cells with the same data share one recipe, so its files are read only once for the id."""
    key = f"{params.seed} {params.data.model_dump_json()}"
    datasets.setdefault(key, dataset_recipe(params.data, params.seed))
    return plan_pipeline(params, datasets[key])


def _ids(recipes: Mapping[str, Recipe]) -> dict[str, str]:
    return {role: recipe.id for role, recipe in recipes.items()}


def _labels(values: Values, levels: Levels, params: StudyParams) -> tuple[str, ...]:
    return tuple(levels[path][place_of(path, value, params.factors)].label for path, value in values.items())


def _shown_levels(planned: Sequence[PlannedCell], levels: Levels, params: StudyParams) -> list[tuple[Level, ...]]:
    """The levels of each cell; where two cells would look the same, those of their first combinations."""
    merged = [_merged_levels(cell.combinations, levels, params) for cell in planned]
    return [
        own if merged.count(own) == 1 else _merged_levels(cell.combinations[:1], levels, params)
        for cell, own in zip(planned, merged, strict=True)
    ]


def _merged_levels(equal: Sequence[Values], levels: Levels, params: StudyParams) -> tuple[Level, ...]:
    """One level for each factor: `any` where all of the factor's levels come to the same."""
    found = []
    for path, known in levels.items():
        places = {place_of(path, values[path], params.factors) for values in equal}
        labels = [known[place].label for place in sorted(places)]
        merged = Level(label="any" if len(labels) == len(known) else " or ".join(labels))
        found.append(known[places.pop()] if len(places) == 1 else merged)
    return tuple(found)


def _reference(cell: PlannedCell, planned: Sequence[PlannedCell], params: StudyParams) -> int | None:
    """The place of the cell that has the reference's values, and all others in common with this one."""
    if not params.compare_with:
        return None
    wanted = cell.combinations[0] | params.compare_with
    return next(place for place, other in enumerate(planned) if wanted in other.combinations)


def _tracked(values: Values, cell: Cell, params: StudyParams) -> dict[str, Any]:
    """What MLflow's run table has columns for: the levels by their labels, and all options of those that have any."""
    checked = params_with(params, values, "factors")
    tracked: dict[str, Any] = {"seed": cell.seed}
    for path, level in zip(values, cell.levels, strict=True):
        tracked[path] = level.label
        value = value_at(checked, path)
        if isinstance(value, Component) and level.family:
            tracked |= {f"{path}.{name}": option for name, option in value.options().items()}
    return tracked


def plan_simulate(params: SimulateParams) -> Recipe:
    """A simulation of the theory."""
    return simulation_recipe(params.simulation, params.seed)


@flow(name="study", flow_run_name="{params.run_name}")
def study(params: StudyParams) -> dict[str, Any]:
    """Every combination of some parameters' values side by side: a table, a plot, and a tracked run for each cell."""
    recipe, children = _plan(params)
    return make_result(recipe, "study", params, children, params.parallel)


@flow(name="simulate", flow_run_name="{params.run_name}")
def simulate(params: SimulateParams) -> dict[str, Any]:
    """The simulations behind EAGLE's theory."""
    return make_result(plan_simulate(params), "simulate", params)
