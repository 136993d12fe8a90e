"""Stages of models: one step makes any of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import SerializeAsAny

from tasks.featurise import kept_block
from tasks.training_data import fit_context, open_rows, open_training_data, row_inputs, splits_of
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.features import FeatureWriter
from xcore.numeric.stopwatch import Stopwatch
from xcore.training.data import RowForm
from xcore.training.stages import RowMap, Stage, Staged


class StageStep(Component):
    """A stage, the form of its rows, and what opens the earlier stages that it uses."""

    stage: SerializeAsAny[Stage]
    form: RowForm
    uses: dict[str, SerializeAsAny[Stage]]


def make_stage(context: BuildContext) -> Mapping[str, Any]:
    """Fit a stage on the training split; one that maps rows is applied to every split, block by block."""
    with Stopwatch() as watch:
        counts = _fit_and_apply(context, context.options)
    return counts | {"cpu_seconds": watch.cpu_seconds}


def _fit_and_apply(context: BuildContext, options: StageStep) -> dict[str, Any]:
    form = options.form
    data = open_training_data(context.inputs, form, options.stage.wants, options.uses)
    fitted = options.stage.fit(data, fit_context(context))
    fitted.save(context.directory)
    if not isinstance(fitted, RowMap):
        return {}
    is_slow = options.stage.maps_slowly
    with FeatureWriter(context.directory, fitted.dimensions) as writer:
        for split in splits_of(context.inputs):
            for block in open_rows(context.inputs, split, form).blocks():
                make = partial(fitted.transform, block)
                writer.write(split, kept_block(context, writer.total_rows, make) if is_slow else make())
    return {"features": fitted.n_features, "dimensions": fitted.dimensions, "rows": writer.rows}


def stage_recipes(model: Staged, form: RowForm, data: Mapping[str, Recipe], seed: int) -> dict[str, Recipe]:
    """The stages of a model by role; `data` holds the recipes of its rows and targets.

    A stage takes only what it uses, so models and seeds that do not matter to it share it.
    """
    declared, made = model.stages(form), dict[str, Recipe]()
    for role, one in declared.items():
        stage = one.options
        inputs = row_inputs(form, data) if one.rows is None else {"features": made[one.rows]}
        if stage.learns_labels or stage.wants:
            wished = {"vocabulary": form != "text", "groups": "bags" in stage.wants}
            names = ["dataset", "labels", *(name for name, is_wished in wished.items() if is_wished)]
            inputs |= {name: data[name] for name in names if name in data}
        inputs |= {used: made[used] for used in one.uses}
        seen: RowForm = form if one.rows is None else "vector"
        step = StageStep(stage=stage, form=seen, uses={used: declared[used].options for used in one.uses})
        seed_used = seed if stage.is_random else 0
        title = f"fit {role.replace('_', ' ')}"
        made[role] = Recipe(
            stage.artifact, make_stage, step, inputs, sources=stage.source_files(), seed=seed_used, title=title
        )
    return made
