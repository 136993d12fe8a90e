"""Prefect's worker, and beside it a watch for killed runs: ``python -P -m flows.operations.worker --pool local``.

It takes the words of ``prefect worker start``. A worker tells Prefect of a run whose process is gone, unless it was
killed with it, and MLflow hears of neither. The watch marks both by itself.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.operations.lost_runs import left_records
from flows.operations.pinned import run_module

SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_BETWEEN_QUESTIONS = 30.0  # to the server: which runs were marked by another machine, or by an automation
SECONDS_AFTER_FAILURE = 20.0
MARK = (sys.executable, "-P", "-m", "flows.operations.lost_runs")

logger = logging.getLogger(__name__)


def watch() -> None:
    """Mark lost runs for as long as this process lives. The marking is a process of its own: it imports MLflow."""
    known: set[str] = set()
    due = time.monotonic()
    while True:
        try:
            crashed: set[str] = set()
            if time.monotonic() >= due:
                crashed = _crashed_lately() - known
                due = time.monotonic() + SECONDS_BETWEEN_QUESTIONS
            if crashed or left_records():
                subprocess.run([*MARK, *crashed], check=True)
                known |= crashed
        except Exception as error:  # such as a server that is being started again
            logger.warning("lost runs could not be marked; this is tried again: %s", error)
            time.sleep(SECONDS_AFTER_FAILURE)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _crashed_lately() -> set[str]:
    """Ids of flow runs that Prefect marked as crashed in the last hours."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    state = filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.CRASHED]))
    since = filters.FlowRunFilterEndTime(after_=datetime.now(UTC) - timedelta(hours=6))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=filters.FlowRunFilter(state=state, end_time=since))
    return {str(run.id) for run in runs}


def report_once() -> None:
    """Let Prefect's worker mark a run whose process was killed once, at once.

    It would do so again after it has loaded the flow, to look for its hooks. That takes seconds. A run that is retried
    meanwhile would be Crashed before its new process starts.
    """
    from prefect.workers.process import ProcessWorker, ProcessWorkerResult

    run = ProcessWorker.run

    async def run_and_report_once(*arguments: Any, **named: Any) -> ProcessWorkerResult:
        result = await run(*arguments, **named)
        return ProcessWorkerResult(status_code=0, identifier=result.identifier)

    ProcessWorker.run = run_and_report_once  # type: ignore[method-assign]


def main() -> None:
    """Start the watch, and then the worker in this thread, which hears the signals."""
    report_once()
    threading.Thread(target=watch, daemon=True).start()
    sys.argv[1:1] = ["prefect", "worker", "start"]
    run_module()


if __name__ == "__main__":
    main()
