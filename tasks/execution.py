"""Runs recipes as Prefect tasks, with progress for the Prefect UI, the tracked run and whoever else listens."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from prefect import runtime, task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import CrashedRun
from prefect.states import Completed
from prefect.tasks import Task

from tasks import settings
from tasks.race import race_rows
from tasks.result_page import report_key, result_markdown
from tasks.study import study_rows
from tasks.tracking import TrackedRun, against_truth
from xcore.artifacts import Artifact, KeptArtifact, MakeResult, Manifest, Recipe
from xcore.data.dataset import Dataset

SECONDS_BETWEEN_REPORTS = 2.0
STUDIES = ("study", "race")  # results that stand for many runs, each of which is a child of the result's


class Listener(Protocol):
    """Hears how steps go; the command line adds one that draws progress."""

    def started(self, recipe: Recipe) -> None: ...

    def progressed(self, recipe: Recipe, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def finished(self, recipe: Recipe, cached: bool) -> None: ...


listeners: list[Listener] = []


class ProgressReport:
    """Sends a step's progress to the listeners, to the tracked run, and every two seconds to the Prefect UI."""

    def __init__(self, recipe: Recipe, run: TrackedRun | None) -> None:
        self._recipe, self._run = recipe, run
        self._report_id: Any = create_progress_artifact(0.0, key=_key(recipe), description=f"{recipe.name} {recipe.id}")
        self._last = time.monotonic()

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        for listener in listeners:
            listener.progressed(self._recipe, step, total, metrics or {})
        if self._run and metrics:
            group = "train" if self._recipe.kind == "model" else f"progress/{self._recipe.kind}"
            self._run.log_progress(step, {f"{group}/{name}": value for name, value in metrics.items()})
        if time.monotonic() - self._last > SECONDS_BETWEEN_REPORTS:
            self._last = time.monotonic()
            update_progress_artifact(self._report_id, progress=100.0 * step / max(total, 1))

    def finish(self) -> None:
        """Show the step as done, whatever it reported last."""
        update_progress_artifact(self._report_id, progress=100.0)


def _retry_on_io(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """A disk or a network may recover; wrong input, wrong code or a missing file will not."""
    error = state.data.exception if hasattr(state.data, "exception") else state.data
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


@task(
    cache_policy=NO_CACHE,  # the store is the cache: it knows the code, and checks what it returns
    persist_result=False,
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=_retry_on_io,
)
def make_artifact(recipe: Recipe, run: TrackedRun | None) -> Any:
    """Make one artifact, or find it made."""
    store = settings.store()
    if store.is_intact(recipe.ref):
        _report_result(recipe, store.manifest(recipe.ref))
        return Completed(name="Cached", message=f"{recipe.ref} was made before", data=True)
    report = ProgressReport(recipe, run)
    made: MakeResult = store.make(recipe, report)
    report.finish()
    _report_result(recipe, made.artifact.manifest)
    return made.cached


class FlowParams(Protocol):
    """What every flow's parameters have."""

    @property
    def name(self) -> str: ...

    @property
    def run_name(self) -> str: ...

    def options(self) -> dict[str, Any]: ...

    def tracked_parameters(self, kinds: Collection[str]) -> dict[str, Any]: ...


def make_result(result: Recipe, flow: str, params: FlowParams) -> dict[str, Any]:
    """Make a recipe and all it needs, one task each, in one tracked run; returns a summary for people and machines."""
    run = TrackedRun.open(params.name, result.id, f"{params.run_name}-{result.id[:8]}")
    tags = {"eyrie.flow": flow, "eyrie.flow_run_id": str(runtime.flow_run.id)}
    try:
        if not run.is_finished:
            run.log_setup(
                params.tracked_parameters({recipe.kind for recipe in result.lineage()}), tags, params.options()
            )
        cached: dict[str, bool] = {}
        for recipe in result.lineage():
            cached[recipe.id] = _run_task(recipe, None if result.kind in STUDIES else run)
            if not run.is_finished:
                _track_step(recipe, result, run, tags)
    except BaseException as error:
        if not run.is_finished:
            # Ctrl-C and a termination signal are no exceptions but interrupts; a task tells of one as a crash.
            failed = isinstance(error, Exception) and not isinstance(error, CrashedRun)
            run.end("FAILED" if failed else "KILLED")
        raise
    if not run.is_finished:
        run.end("FINISHED")
    summary = _summary(result, run, cached)
    create_markdown_artifact(result_markdown(summary), key=report_key(params.name), description=f"Result of {flow}")
    return summary


def add_to_result(step: Recipe, result: Recipe, params: FlowParams) -> bool:
    """Make one more step after a result, and show it in the result's run; True if it had been made before."""
    run = TrackedRun.find(params.name, result.id)
    known = {recipe.id for recipe in result.lineage()}
    cached = [_run_task(recipe, None) for recipe in step.lineage() if recipe.id not in known]
    artifact = settings.store().open(step.ref)
    if run and run.tags.get(f"eyrie.{step.kind}") != step.id:
        run.log_result(artifact)
        run.log_step(artifact.manifest)  # its tag is written last: whoever finds it need not log again
    return all(cached)


def _track_step(recipe: Recipe, result: Recipe, run: TrackedRun, tags: Mapping[str, str]) -> None:
    """Log a step that is made: what it cost, or, for one evaluation of a study, a run of its own below the study's."""
    artifact = settings.store().open(recipe.ref)
    own = {source.id for source in result.inputs.values() if source.kind in ("evaluation", "curve")}
    if result.kind in STUDIES and recipe.id in own:
        _track_child(recipe, artifact, run, tags)
    elif result.kind not in STUDIES or recipe is result:
        run.log_step(artifact.manifest)
        run.log_result(artifact)
        if recipe.kind == "evaluation":
            run.log_report([settings.store().open(step.ref) for step in recipe.lineage()])


def _track_child(recipe: Recipe, artifact: Artifact, run: TrackedRun, tags: Mapping[str, str]) -> None:
    steps = list(recipe.lineage())
    options = {step.kind: step.options.options() for step in steps if step.kind in ("groups", "imputed", "model")}
    name = "-".join(str(chosen["kind"]) for chosen in options.values())
    if recipe.kind == "curve":
        options = {"model": json.loads((artifact.directory / "model.json").read_text())}
        name = str(options["model"]["method"])
    child = run.child(recipe.id, f"{name}-{recipe.id[:8]}")
    if not child.is_finished:
        child.log_setup(options | {"seed": recipe.seed}, tags)
        for step in steps:
            child.log_step(settings.store().manifest(step.ref))
        child.log_result(artifact)
        child.end("FINISHED")


def finished_result(result: Recipe, params: FlowParams) -> dict[str, Any] | None:
    """The summary of a result that was made and tracked before and is intact; None if there is anything to do."""
    store = settings.store()
    if not all(store.is_intact(recipe.ref) for recipe in result.lineage()):
        return None
    run = TrackedRun.find(params.name, result.id)
    return _summary(result, run, {recipe.id: True for recipe in result.lineage()}) if run and run.is_finished else None


def kept_dataset(text: str) -> tuple[Recipe, Dataset]:
    """The dataset whose id starts so, as an input for new steps, and opened."""
    store = settings.store()
    ref = store.find(text if "/" in text else f"dataset/{text}")
    return KeptArtifact.of(ref), Dataset(store.open(ref).directory)


def _run_task(recipe: Recipe, run: TrackedRun | None) -> bool:
    if isinstance(recipe, KeptArtifact):
        settings.store().open(recipe.ref)
        return True
    name = recipe.build.__name__
    for listener in listeners:
        listener.started(recipe)
    state = make_artifact.with_options(name=name, task_run_name=f"{name}-{recipe.id}")(recipe, run, return_state=True)
    cached = bool(state.result())
    for listener in listeners:
        listener.finished(recipe, cached)
    return cached


def _summary(result: Recipe, run: TrackedRun, cached: Mapping[str, bool]) -> dict[str, Any]:
    store = settings.store()
    manifests = [store.manifest(recipe.ref) for recipe in result.lineage()]
    steps = [
        {
            "step": manifest.component,
            "artifact": str(manifest.ref),
            "cached": cached[manifest.id],
            "seconds": round(manifest.seconds, 3),
            "peak_memory_mb": round(manifest.peak_memory_bytes / 1e6, 1),
        }
        for manifest in manifests
    ]
    directory = store.open(result.ref).directory
    measured = json.loads((directory / "metrics.json").read_text()) if result.kind == "evaluation" else {}
    return {
        "result": str(result.ref),
        "metrics": measured.get("metrics", {}),
        "intervals": measured.get("intervals", {}),
        "imputation": {
            name: value
            for manifest in manifests
            for name, value in against_truth(manifest).items()
            if result.kind == "evaluation"
        },
        "notes": [note for manifest in manifests for note in manifest.counts.get("notes", ())],
        "study": study_rows(directory) if result.kind == "study" else [],
        "race": race_rows(directory) if result.kind == "race" else [],
        "mlflow_run": run.id,
        "mlflow_experiment": run.experiment_id,
        "reopened": run.is_reopened,
        "nothing_changed": run.is_finished and all(cached.values()),
        "steps": steps,
    }


def _report_result(recipe: Recipe, manifest: Manifest) -> None:
    """What a step made and what that cost, for the Prefect UI."""
    facts = {
        "artifact": str(manifest.ref),
        "seconds": round(manifest.seconds, 3),
        "peak memory, MB": round(manifest.peak_memory_bytes / 1e6, 1),
        "bytes": manifest.n_bytes,
        **{name: value for name, value in manifest.counts.items() if isinstance(value, int | float | str)},
    }
    table = [{"what": name, "value": value} for name, value in facts.items()]
    create_table_artifact(table, key=f"{_key(recipe)}-result", description=f"{recipe.name} {recipe.id}")


def _key(recipe: Recipe) -> str:
    return recipe.build.__name__.replace("_", "-")
