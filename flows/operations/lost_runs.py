"""Runs that lost their process. Mark them as Crashed in Prefect and as KILLED in MLflow, so they can be retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from tasks import settings
from tasks.lost_runs import end_lost_runs, is_lost, own_process

STOPPED = "The services were stopped while this was under way. A retry continues after the last finished step."
KILLED = "Its process was killed. The same command continues after the last finished step."


def mark_lost_runs() -> None:
    """Mark runs of this machine that are said to be under way although their process is gone."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    left = _left_records()
    ids = {*end_lost_runs(), *left}
    if not ids:
        return
    with get_client(sync_client=True) as client:
        for flow_run_id in ids:
            try:
                _crash(client, client.read_flow_run(UUID(flow_run_id)), KILLED)
            except ObjectNotFound:  # another Prefect server has it
                continue
    for record in left.values():
        record.unlink(missing_ok=True)


@contextmanager
def recorded_runs(flow: Any) -> Iterator[Any]:
    """The flow, made to leave a record of its process in the work folder as long as it runs.

    A process that is killed before its MLflow run is open has left no other trace.
    """
    written: list[Path] = []

    def record(flow: Any, flow_run: Any, state: Any) -> None:
        path = _records() / str(flow_run.id)
        path.parent.mkdir(exist_ok=True)
        path.write_text(own_process())
        written.append(path)

    try:
        yield flow.with_options(on_running=[record])
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _left_records() -> dict[str, Path]:
    """Records of killed processes, by the ids of their flow runs."""
    paths = list(_records().iterdir()) if _records().is_dir() else []
    return {path.name: path for path in paths if is_lost(path.read_text(errors="replace"))}


def _records() -> Path:
    return settings.home() / "runs"


def crash_pool_runs(pool: str) -> None:
    """Mark the runs of a work pool as Crashed. Call this only if the worker of the pool has stopped."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters

    state = filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=_under_way()))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_run_filter=filters.FlowRunFilter(state=state),
            work_pool_filter=filters.WorkPoolFilter(name=filters.WorkPoolFilterName(any_=[pool])),
        ):
            _crash(client, run, STOPPED)
            print(f"run {run.name} was lost: marked Crashed")


def _crash(client: Any, run: Any, message: str) -> None:
    """Mark a flow run and those of its tasks that are recorded as running."""
    from prefect.client.schemas import filters
    from prefect.states import Crashed

    if run.state and run.state.type in _under_way():
        client.set_flow_run_state(run.id, Crashed(message=message), force=True)
    state = filters.TaskRunFilterState(type=filters.TaskRunFilterStateType(any_=_under_way()))
    for task in client.read_task_runs(
        flow_run_filter=filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[run.id])),
        task_run_filter=filters.TaskRunFilter(state=state),
    ):
        client.set_task_run_state(task.id, Crashed(message=message), force=True)


def _under_way() -> list[Any]:
    from prefect.client.schemas.objects import StateType

    return [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
