"""What a tracked run says of each step, and the runs below it of a result that stands for many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks import settings
from tasks.beside import beside_of
from tasks.tracking import TrackedRun
from xcore.artifacts import Recipe
from xcore.artifacts.naming import step_names
from xcore.views.base import view_of


@dataclass(frozen=True)
class Child:
    """A result that has a tracked run of its own, below that of a result which stands for many."""

    name: str
    parameters: Mapping[str, Any]


def track_step(
    recipe: Recipe, result: Recipe, run: TrackedRun, tags: Mapping[str, str], children: Mapping[str, Child]
) -> None:
    """Log a step that is made: in a run of its own where it is a child's, else what it cost, in the result's."""
    if recipe.id in children:
        _track_child(recipe, children[recipe.id], run, tags)
    elif recipe is result or not view_of(result.kind).stands_for_many:
        store = settings.store()
        artifact = store.open(recipe.ref)
        run.log_step(artifact.manifest, step_names(list(result.lineage()))[recipe.id])
        run.log_result(artifact)
        if view_of(recipe.kind).has_page:
            lineage = [store.open(step.ref) for step in recipe.lineage()]
            run.log_page(lineage, beside_of(run, lineage))


def _track_child(recipe: Recipe, child: Child, parent: TrackedRun, tags: Mapping[str, str]) -> None:
    run = parent.child(recipe.id, f"{child.name}-{recipe.id[:8]}")
    if not run.is_finished:
        store, steps = settings.store(), list(recipe.lineage())
        names = step_names(steps)
        run.log_setup(child.parameters, tags)
        for step in steps:
            run.log_step(store.manifest(step.ref), names[step.id])
            if view_of(step.kind).shown_with_result:
                run.log_result(store.open(step.ref))
        run.log_result(store.open(recipe.ref))
        run.end("FINISHED")
