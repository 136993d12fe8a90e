"""Learning curves: settings are chosen on validation rows, then curves are measured on test rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from tasks.training_data import forms_of, open_rows, open_training_data
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.models.negative_sampling import NegativeSampling
from xcore.studies.curves import CurveRecorder, best_of, without_unused_tree
from xcore.training.context import CurvePoints, FitContext
from xcore.training.data import LabelledRows, RowForm, RowsInMemory


class Measuring(Component):
    """How long to train, and on which rows to measure the learning curve."""

    epochs: int = Field(
        10, ge=1, description="Number of passes over the positives. More passes give longer curves and cost more time."
    )
    split: Split = Field("test", description="Split on which the curve is measured.")
    rows: int = Field(5000, ge=1, description="Maximum number of rows to measure on. They are drawn at random.")
    points: CurvePoints = Field(
        "early",
        description="When the curve is measured. last: after the last epoch; epochs: after each epoch; early: "
        "also during the first epoch.",
    )


class CurveOptions(Measuring):
    """What is trained and measured."""

    candidates: tuple[NegativeSampling, ...] = Field(
        min_length=1, description="The model. If there are several, the input `choice` says which one to train."
    )


def measure_curve(context: BuildContext) -> Mapping[str, Any]:
    """Train and measure the learning curve. Times are not part of the result, so they go into the manifest."""
    options: CurveOptions = context.options
    chosen = context.inputs.get("choice")
    place = json.loads((chosen.directory / "choice.json").read_text())["chosen"] if chosen else 0
    model = options.candidates[place].model_copy(update={"epochs": options.epochs})
    form = model.form_for(forms_of(context.inputs))
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

    metric: str = Field(
        "accuracy", description="Metric of the last point of each curve. The setting with the highest value is chosen."
    )


def choose_settings(context: BuildContext) -> Mapping[str, Any]:
    """The best of several curves on validation rows."""
    options: ChoiceOptions = context.options
    curves = [context.inputs[role].directory / "curve.parquet" for role in sorted(context.inputs)]
    values = [pq.read_table(path)[options.metric].to_pylist()[-1] for path in curves]
    chosen = best_of(values)
    found = {"chosen": chosen, "values": [value if np.isfinite(value) else None for value in values]}
    (context.directory / "choice.json").write_text(json.dumps(found, indent=1))
    return {"tried": len(values), "chosen": chosen}


def curve_recipe(
    candidates: Sequence[NegativeSampling],
    inputs: Mapping[str, Recipe],
    measuring: Measuring,
    tuning: Measuring,
    seed: int,
) -> Recipe:
    """The learning curve of a model; of several candidates, the one that did best on the rows of the tuning.

    The inputs are those of the model's own recipe.
    """
    models = tuple(without_unused_tree(model) for model in candidates)
    if len(models) == 1:
        return _curve(models, inputs, measuring, seed)
    trials = {f"trial-{place:03d}": _curve((model,), inputs, tuning, seed) for place, model in enumerate(models)}
    choice = Recipe("choice", choose_settings, ChoiceOptions(), trials)
    return _curve(models, {**inputs, "choice": choice}, measuring, seed)


def _curve(
    models: tuple[NegativeSampling, ...], inputs: Mapping[str, Recipe], measuring: Measuring, seed: int
) -> Recipe:
    options = CurveOptions(candidates=models, **{name: getattr(measuring, name) for name in Measuring.model_fields})
    return Recipe("curve", measure_curve, options, dict(inputs), seed=seed)
