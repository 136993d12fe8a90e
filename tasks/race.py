"""Methods race: settings are chosen on validation rows, then learning curves are measured on test rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from tasks.stages import stage_recipes
from tasks.training_data import forms_of, open_rows, open_training_data
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.models.base import choose_form
from xcore.models.negative_sampling import NegativeSampling
from xcore.studies.curves import Contender, CurveRecorder, best_of, curves_table, race_table
from xcore.training.context import CurvePoints, FitContext
from xcore.training.data import LabelledRows, RowForm, RowsInMemory


class Measuring(Component):
    """How long is trained, and on which rows the curve is measured."""

    epochs: int = Field(10, ge=1, description="Passes over the positives.")
    split: Split = Field("test", description="Split whose rows are measured.")
    rows: int = Field(5000, ge=1, description="Rows measured, at most: drawn at random.")
    points: CurvePoints = Field(
        "early", description="last: after the last epoch; epochs: after each; early: also within the first."
    )


class CurveOptions(Measuring):
    """What is trained and measured."""

    candidates: tuple[NegativeSampling, ...] = Field(
        min_length=1, description="The model; of several, the one that the input `choice` names."
    )


def measure_curve(context: BuildContext) -> Mapping[str, Any]:
    """Train, and measure early in the first epoch and after each; seconds, not being a result, go into the manifest."""
    options: CurveOptions = context.options
    chosen = context.inputs.get("choice")
    place = json.loads((chosen.directory / "choice.json").read_text())["chosen"] if chosen else 0
    model = options.candidates[place].model_copy(update={"epochs": options.epochs})
    form = choose_form(type(model), forms_of(context.inputs))
    stages = {role: declared.options for role, declared in model.stages(form).items()}
    data = open_training_data(context.inputs, form, stages=stages)
    measured = _measured_rows(context, form, options)
    curve = CurveRecorder(context.report, model.epochs)
    model.fit(replace(data, dev=measured), FitContext(rng=context.rng, report=curve, curve=options.points))
    sampler_seconds = sum(data.stages[role].cpu_seconds for role in ("projection", "tree") if role in data.stages)
    pq.write_table(curve.table(), context.directory / "curve.parquet")
    (context.directory / "model.json").write_text(json.dumps(model.options(), indent=1, sort_keys=True))
    return {"rows": measured.Y.shape[0], "seconds": curve.seconds, "sampler_seconds": sampler_seconds}


def _measured_rows(context: BuildContext, form: RowForm, options: CurveOptions) -> LabelledRows:
    """The same rows for all curves of a split."""
    dataset = Dataset(context.inputs["dataset"].directory)
    rows = np.random.default_rng(0).permutation(dataset.n_rows(options.split))[: options.rows]
    rows.sort()
    X = open_rows(context.inputs, options.split, form).whole()[rows]
    return LabelledRows(RowsInMemory(X, form), dataset.Y(options.split)[rows])


class ChoiceOptions(Component):
    """How settings are chosen."""

    metric: str = Field("accuracy", description="Measure of the last point of each curve, the more the better.")


def choose_settings(context: BuildContext) -> Mapping[str, Any]:
    """The best of several curves on validation rows."""
    options: ChoiceOptions = context.options
    curves = [context.inputs[role].directory / "curve.parquet" for role in sorted(context.inputs)]
    values = [pq.read_table(path)[options.metric].to_pylist()[-1] for path in curves]
    chosen = best_of(values)
    found = {"chosen": chosen, "values": [value if np.isfinite(value) else None for value in values]}
    (context.directory / "choice.json").write_text(json.dumps(found, indent=1))
    return {"tried": len(values), "chosen": chosen}


class RaceOptions(Component):
    """The methods of a race, in the order of its inputs; the first is the one that others are compared with."""

    contenders: tuple[Contender, ...] = Field(min_length=1, description="What each curve stands for.")


def tabulate_race(context: BuildContext) -> Mapping[str, Any]:
    """All curves with their seconds, and when each method's final accuracy was reached, by it and by the first one."""
    options: RaceOptions = context.options
    curves = [context.inputs[f"curve-{place:02d}"] for place in range(len(options.contenders))]
    methods: list[str] = [contender.method for contender in options.contenders]
    models = [NegativeSampling.model_validate_json((curve.directory / "model.json").read_text()) for curve in curves]
    tables = [pq.read_table(curve.directory / "curve.parquet") for curve in curves]
    points = curves_table(methods, tables, [curve.manifest.counts["seconds"] for curve in curves])
    chosen = zip(options.contenders, models, strict=True)
    settings: dict[str, str] = {contender.method: contender.settings_of(model) for contender, model in chosen}
    sampler = {name: curve.manifest.counts["sampler_seconds"] for name, curve in zip(methods, curves, strict=True)}
    pq.write_table(points, context.directory / "curves.parquet")
    pq.write_table(race_table(points, settings, sampler), context.directory / "summary.parquet")
    return {"methods": len(methods), "points": points.num_rows}


def curve_recipe(
    contender: Contender,
    base: NegativeSampling,
    tuning: Measuring,
    race: Measuring,
    form: RowForm,
    data: Mapping[str, Recipe],
    seed: int,
) -> Recipe:
    """The curve of a method on the rows of the race, with the settings that did best on those of the tuning."""
    candidates = contender.candidates(base)
    stages = stage_recipes(candidates[0], choose_form(NegativeSampling, [form]), data, seed)
    inputs = {role: data[role] for role in ("dataset", "features")} | stages

    def curve(measuring: Measuring, models: tuple[NegativeSampling, ...], more: Mapping[str, Recipe]) -> Recipe:
        options = CurveOptions(candidates=models, **measuring.options())
        return Recipe("curve", measure_curve, options, inputs | dict(more), seed=seed)

    trials = {f"trial-{place:03d}": curve(tuning, (model,), {}) for place, model in enumerate(candidates)}
    choice = Recipe("choice", choose_settings, ChoiceOptions(), trials)
    epochs = contender.epochs or race.epochs
    return curve(race.model_copy(update={"epochs": epochs}), candidates, {"choice": choice})


def race_recipe(contenders: Sequence[Contender], curves: Sequence[Recipe]) -> Recipe:
    """The table of a race, from its curves."""
    inputs = {f"curve-{place:02d}": curve for place, curve in enumerate(curves)}
    return Recipe("race", tabulate_race, RaceOptions(contenders=tuple(contenders)), inputs)


def race_rows(directory: Path) -> list[dict[str, Any]]:
    """The summary of a race that is made, for the command line."""
    rows: list[dict[str, Any]] = pq.read_table(directory / "summary.parquet").to_pylist()
    return rows
