"""Runs that lost their process. Mark them as Crashed in Prefect and as KILLED in MLflow, so they can be retried.

``python -P -m flows.operations.lost_runs [ID ...]`` marks them; the ids are those of runs that Prefect has marked.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from tasks import settings
from tasks.endpoints import use_services
from tasks.lost_runs import end_lost_runs, is_lost, own_process
from xcore.files import replacing

STOPPED = "The services were stopped while this was under way. A retry continues after the last finished step."
RECORDS = "runs"  # a folder of the work folder: a file for each flow run, with the process that makes it
KILLED = "Its process was killed. The same command continues after the last finished step."


def mark_lost_runs(crashed: Collection[str] = ()) -> None:
    """Mark runs of this machine that are said to be under way although their process is gone.

    MLflow runs of the flow runs `crashed` are ended too, whatever machine they were on.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    left = left_records()
    ids = {*end_lost_runs(crashed), *left}
    if not ids:
        return
    with get_client(sync_client=True) as client:
        for flow_run_id in ids:
            try:
                run = client.read_flow_run(UUID(flow_run_id))
            except ObjectNotFound:  # another Prefect server has it
                continue
            if not _is_recorded(flow_run_id):  # else somebody retries it already
                _crash(client, run, KILLED, _running())
    for record in left.values():
        if is_lost(_read(record)):
            record.unlink(missing_ok=True)


@contextmanager
def recorded_runs(flow: Any) -> Iterator[Any]:
    """The flow, made to leave a record of its process in the work folder as long as it runs.

    A process that is killed before its MLflow run is open has left no other trace.
    """
    with ExitStack() as records:

        def record(flow: Any, flow_run: Any, state: Any) -> None:
            records.enter_context(recorded_process(str(flow_run.id)))

        yield flow.with_options(on_running=[record])


@contextmanager
def recorded_process(flow_run_id: str | None) -> Iterator[None]:
    """Leave a record of this process, which makes a flow run, until the block ends; nothing without an id."""
    if flow_run_id is None:
        yield
        return
    path = settings.make_home() / RECORDS / flow_run_id
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as draft:
        draft.write_text(own_process())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def left_records() -> dict[str, Path]:
    """Records of killed processes, by the ids of their flow runs."""
    folder = settings.home() / RECORDS
    paths = list(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path for path in paths if not path.name.startswith(".") and is_lost(_read(path))}


def _is_recorded(flow_run_id: str) -> bool:
    """Whether a process of this machine makes the run."""
    mark = _read(settings.home() / RECORDS / flow_run_id)
    return bool(mark) and not is_lost(mark)


def _read(record: Path) -> str:
    try:
        return record.read_text(errors="replace")
    except OSError:  # it was taken away meanwhile
        return ""


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
            _crash(client, run, STOPPED, _under_way())
            print(f"run {run.name} was lost: marked Crashed")


def _crash(client: Any, run: Any, message: str, states: list[Any]) -> None:
    """Mark a flow run if it is in one of these states, and those of its tasks that are recorded as running."""
    from prefect.client.schemas import filters
    from prefect.states import Crashed

    if run.state and run.state.type in states:
        client.set_flow_run_state(run.id, Crashed(message=message), force=True)
    state = filters.TaskRunFilterState(type=filters.TaskRunFilterStateType(any_=_under_way()))
    for task in client.read_task_runs(
        flow_run_filter=filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[run.id])),
        task_run_filter=filters.TaskRunFilter(state=state),
    ):
        client.set_task_run_state(task.id, Crashed(message=message), force=True)


def _under_way() -> list[Any]:
    from prefect.client.schemas.objects import StateType

    return [StateType.PENDING, *_running()]


def _running() -> list[Any]:
    """States that the process of a run has begun. A pending run may be a retry: its process is yet to start."""
    from prefect.client.schemas.objects import StateType

    return [StateType.RUNNING, StateType.CANCELLING]


if __name__ == "__main__":
    use_services()
    mark_lost_runs(sys.argv[1:])
