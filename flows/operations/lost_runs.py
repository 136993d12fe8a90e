"""Runs that lost their process. Mark them as Crashed in Prefect and as KILLED in MLflow, so they can be retried."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tasks.lost_runs import end_lost_runs

STOPPED = "The services were stopped while this was under way. A retry continues after the last finished step."
KILLED = "Its process was killed. The same command continues after the last finished step."


def mark_lost_runs() -> None:
    """Mark runs of this machine that are said to be under way although their process is gone."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    ids = end_lost_runs()
    if not ids:
        return
    with get_client(sync_client=True) as client:
        for flow_run_id in ids:
            try:
                _crash(client, client.read_flow_run(UUID(flow_run_id)), KILLED)
            except ObjectNotFound:  # another Prefect server has it
                continue


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
