"""Runs recipes as Prefect tasks, with progress for the Prefect UI, the tracked run and whoever else listens."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from threading import Event
from typing import Any, Protocol

import httpx
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
from tasks.result_page import headline, note_markdown, report_key, report_slug, result_markdown
from tasks.scheduling import Running, run_in_order
from tasks.summary import summary_of
from tasks.tracked_steps import Child, track_step
from tasks.tracking import TrackedRun
from xcore.artifacts import KeptArtifact, MakeResult, Manifest, Recipe
from xcore.artifacts.manifest import git_commit, library_versions
from xcore.artifacts.naming import step_names
from xcore.errors import EyrieError
from xcore.views.base import view_of

SECONDS_BETWEEN_REPORTS = 2.0
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # seconds; a server that died is started again within a minute
logger = logging.getLogger(__name__)
Finished = Callable[[Recipe, bool], None]


class Listener(Protocol):
    """Hears how steps go; the command line adds one that draws progress."""

    def started(self, recipe: Recipe) -> None: ...

    def progressed(self, recipe: Recipe, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def finished(self, recipe: Recipe, cached: bool) -> None: ...


listeners: list[Listener] = []


def _without_traceback(record: logging.LogRecord) -> bool:
    """An error that its reader can mend says what to do; a traceback below it would only hide that."""
    if record.exc_info and isinstance(record.exc_info[1], EyrieError):
        record.exc_info = None
    return True


for _name in ("prefect.task_runs", "prefect.flow_runs"):
    logging.getLogger(_name).addFilter(_without_traceback)


class Stopped(EyrieError):
    """A step ended early, because the run that it belongs to ends."""


class StepRun:
    """How one step is run. It is no dataclass, since Prefect looks for futures in all fields of those.

    Attributes
    ----------
    name : what metrics, tags and progress of the step are called; no two steps of a run have the same name.
    key : the key of its reports in the Prefect UI.
    tracked : the run that its progress is tracked in, if any.
    stop : set when the step should end early.
    """

    def __init__(self, recipe: Recipe, name: str, key: str, tracked: TrackedRun | None, stop: Event) -> None:
        self.recipe, self.name, self.key, self.tracked, self.stop = recipe, name, key, tracked, stop


class ProgressReport:
    """Sends a step's progress to the listeners, to the tracked run, and every two seconds to the Prefect UI."""

    def __init__(self, step: StepRun) -> None:
        self._step, self._recipe = step, step.recipe
        self._group = view_of(step.recipe.kind).progress_group(step.name)
        self._report_id: Any = None  # a step that ends within seconds needs no progress bar
        self._context = copy_context()  # of the task: a step may report from threads that Prefect does not know
        self._last = time.monotonic()

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if self._step.stop.is_set():
            raise Stopped(f"{self._recipe.name} was stopped: another step failed, or the run was interrupted")
        for listener in listeners:
            listener.progressed(self._recipe, step, total, metrics or {})
        if self._step.tracked and metrics:
            named = {f"{self._group}/{name}": value for name, value in metrics.items()}
            self._step.tracked.log_progress(step, named)
        if time.monotonic() - self._last > SECONDS_BETWEEN_REPORTS:
            self._last = time.monotonic()
            self._show(100.0 * step / max(total, 1))

    def finish(self) -> None:
        """Show the step as done, whatever it reported last."""
        if self._report_id is not None:
            self._show(100.0)

    def _show(self, percent: float) -> None:
        try:
            if self._report_id is None:
                described = f"{self._recipe.name} {self._recipe.id}"
                create = partial(create_progress_artifact, percent, key=self._step.key, description=described)
                self._report_id = self._context.copy().run(create)
            else:
                self._context.copy().run(update_progress_artifact, self._report_id, progress=percent)
        except httpx.TransportError as error:  # the server is being started again: no reason to stop a training
            logger.info("Prefect does not answer, so it shows no progress: %s", error)


def patiently(show: Callable[[], object]) -> None:
    """Show a report in the Prefect UI. A server that is gone may come back; if it does not, the run goes on without."""
    for pause in (*PAUSES, None):
        try:
            show()
            return
        except httpx.TransportError as error:
            if pause is None:
                logger.warning("Prefect does not answer, so a report is missing there: %s", error)
                return
            time.sleep(pause)


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
def make_artifact(step: StepRun) -> Any:
    """Make one artifact, or find it made."""
    store, recipe = settings.store(), step.recipe
    if store.is_intact(recipe.ref):
        _report_result(step, store.manifest(recipe.ref))
        return Completed(name="Cached", message=f"{recipe.ref} was made before", data=True)
    report = ProgressReport(step)
    made: MakeResult = store.make(recipe, report)
    report.finish()
    _report_result(step, made.artifact.manifest)
    return made.cached


class FlowParams(Protocol):
    """What every flow's parameters have."""

    @property
    def name(self) -> str: ...

    @property
    def experiment(self) -> str: ...

    @property
    def run_name(self) -> str: ...

    def options(self) -> dict[str, Any]: ...

    def tracked_parameters(self, kinds: Collection[str]) -> dict[str, Any]: ...


def make_result(
    result: Recipe, flow: str, params: FlowParams, children: Mapping[str, Child] | None = None, at_once: int = 1
) -> dict[str, Any]:
    """Make a recipe and all it needs, one task each, in one tracked run; returns a summary for people and machines.

    `children` are the results with tracked runs of their own, by their ids; `at_once` is the number of steps that
    may run at the same time.
    """
    run = TrackedRun.open(params.experiment, result.id, f"{params.run_name}-{result.id[:8]}")
    tags = {"eyrie.flow": flow, "eyrie.flow_run_id": str(runtime.flow_run.id)}
    cached: dict[str, bool] = {}

    def finished(recipe: Recipe, was_cached: bool) -> None:
        cached[recipe.id] = was_cached
        if not run.is_finished:
            track_step(recipe, result, run, tags, children or {})

    try:
        if not run.is_finished:
            run.log_setup(
                params.tracked_parameters({recipe.kind for recipe in result.lineage()}), tags, params.options()
            )
        _run_steps(result, None if view_of(result.kind).stands_for_many else run, finished, at_once)
    except BaseException as error:
        if not run.is_finished:
            # Ctrl-C and a termination signal are no exceptions but interrupts; a task tells of one as a crash.
            failed = isinstance(error, Exception) and not isinstance(error, CrashedRun)
            run.end("FAILED" if failed else "KILLED")
        raise
    summary = summary_of(result, run, cached) | {"flow_run": str(runtime.flow_run.id)}
    if not run.is_finished:
        run.log_curves()
        run.describe(note_markdown(summary))
        run.end("FINISHED")
    page, key = result_markdown(summary), report_key(params.name)
    patiently(partial(create_markdown_artifact, page, key=key, description=f"Result of {flow}"))
    return summary


def completed(summary: dict[str, Any]) -> Any:
    """The final state of a flow: its message has the result in a few words, its data is the summary."""
    return Completed(message=headline(summary), data=summary)


def add_to_result(step: Recipe, result: Recipe, params: FlowParams) -> bool:
    """Make one more step after a result, and show it in the result's run; True if it had been made before."""
    run = TrackedRun.find(params.experiment, result.id)
    known = {recipe.id for recipe in result.lineage()}
    steps = [each for each in _step_runs(step, None) if each.recipe.id not in known]
    cached = [_run_task(each) for each in steps]
    artifact = settings.store().open(step.ref)
    if run and run.tags.get(f"eyrie.{step.kind}") != step.id:
        run.log_result(artifact)
        run.log_step(artifact.manifest, step.kind)  # its tag is written last: whoever finds it need not log again
    return all(cached)


def _step_runs(result: Recipe, run: TrackedRun | None) -> list[StepRun]:
    """All steps of a result, inputs first, with names and keys that no two of them share."""
    lineage, stop = list(result.lineage()), Event()
    names = step_names(lineage)
    titles = Counter(recipe.name for recipe in lineage)
    steps = []
    for recipe in lineage:
        key = recipe.name if titles[recipe.name] == 1 else f"{recipe.name} {names[recipe.id]}"
        steps.append(StepRun(recipe, names[recipe.id], report_slug(key), run, stop))
    return steps


def _run_steps(result: Recipe, run: TrackedRun | None, finished: Finished, at_once: int) -> None:
    steps = _step_runs(result, run)
    if at_once == 1:  # in this thread, where Ctrl-C interrupts a step
        for step in steps:
            finished(step.recipe, _run_task(step))
    else:
        _run_in_threads(steps, finished, at_once)


def _run_in_threads(steps: Sequence[StepRun], finished: Finished, at_once: int) -> None:
    git_commit(), library_versions()  # as the ids: `ast.parse` and a fork do not go well with threads
    for step in steps:
        if isinstance(step.recipe, KeptArtifact):
            finished(step.recipe, _run_task(step))
    to_make = {step.recipe.id: step for step in steps if not isinstance(step.recipe, KeptArtifact)}

    def start(recipe: Recipe) -> Running:
        _tell_started(recipe)
        started: Running = _task_of(recipe).submit(to_make[recipe.id])
        return started

    def ended(recipe: Recipe, future: Any) -> None:
        cached = bool(future.result())
        _tell_finished(recipe, cached)
        finished(recipe, cached)

    run_in_order([step.recipe for step in to_make.values()], start, ended, steps[0].stop.set, at_once)


def _run_task(step: StepRun) -> bool:
    recipe = step.recipe
    if isinstance(recipe, KeptArtifact):
        settings.store().open(recipe.ref)
        return True
    _tell_started(recipe)
    cached = bool(_task_of(recipe)(step, return_state=True).result())
    _tell_finished(recipe, cached)
    return cached


def _task_of(recipe: Recipe) -> Any:
    name = recipe.name.replace(" ", "_")
    return make_artifact.with_options(name=name, task_run_name=f"{name}-{recipe.id}")


def _tell_started(recipe: Recipe) -> None:
    for listener in listeners:
        listener.started(recipe)


def _tell_finished(recipe: Recipe, cached: bool) -> None:
    for listener in listeners:
        listener.finished(recipe, cached)


def _report_result(step: StepRun, manifest: Manifest) -> None:
    """What a step made and what that cost, for the Prefect UI."""
    facts = {
        "artifact": str(manifest.ref),
        "seconds": round(manifest.seconds, 3),
        "seconds of compiling kernels": round(manifest.compile_seconds, 3),
        "peak memory, MB": round(manifest.peak_memory_bytes / 1e6, 1),
        "bytes": manifest.n_bytes,
        **{name: value for name, value in manifest.counts.items() if isinstance(value, int | float | str)},
    }
    table = [{"what": name, "value": value} for name, value in facts.items()]
    described = f"{step.recipe.name} {step.recipe.id}"
    patiently(partial(create_table_artifact, table, key=f"{step.key}-result", description=described))
