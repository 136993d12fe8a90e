"""What a run came to, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tasks import settings
from tasks.tracking import TrackedRun
from xcore.artifacts import Manifest, Recipe
from xcore.artifacts.naming import step_names
from xcore.views.base import view_of


def summary_of(result: Recipe, run: TrackedRun, cached: Mapping[str, bool]) -> dict[str, Any]:
    """Facts and tables of a result, what each step cost, and where the run is tracked; all of it plain JSON values."""
    store, lineage = settings.store(), list(result.lineage())
    view, names = view_of(result.kind), step_names(lineage)
    manifests = [store.manifest(step.ref) for step in lineage]
    told = [(view_of(step.kind), store.open(step.ref)) for step in ([result] if view.stands_for_many else lineage)]
    return {
        "result": str(result.ref),
        "metrics": {},
        "intervals": {},
        **{name: fact for each, artifact in told for name, fact in each.facts(artifact).items()},
        "tables": [asdict(table) for table in view.tables(told[-1][1])],
        "sentences": [said for each, artifact in told if (said := each.sentence(artifact))],
        "notes": [note for manifest in manifests for note in manifest.counts.get("notes", ())],
        "stands_for_many": view.stands_for_many,
        "mlflow_run": run.id,
        "mlflow_experiment": run.experiment_id,
        "reopened": run.is_reopened,
        "nothing_changed": run.is_finished and all(cached.values()),
        "steps": [_cost(manifest, names[manifest.id], cached[manifest.id]) for manifest in manifests],
    }


def finished_result(result: Recipe, experiment: str) -> dict[str, Any] | None:
    """The summary of a result that was made and tracked before and is intact; None if there is anything to do."""
    store = settings.store()
    if not all(store.is_intact(recipe.ref) for recipe in result.lineage()):
        return None
    run = TrackedRun.find(experiment, result.id)
    cached = {recipe.id: True for recipe in result.lineage()}
    return summary_of(result, run, cached) if run and run.is_finished else None


def _cost(manifest: Manifest, name: str, cached: bool) -> dict[str, Any]:
    return {
        "step": manifest.component,
        "name": name,
        "artifact": str(manifest.ref),
        "cached": cached,
        "seconds": round(manifest.seconds, 3),
        "compile_seconds": round(manifest.compile_seconds, 3),
        "peak_memory_mb": round(manifest.peak_memory_bytes / 1e6, 1),
    }
