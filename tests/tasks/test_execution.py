"""How steps are told to Prefect."""

import logging
from contextvars import ContextVar
from functools import partial
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tasks import execution
from tasks.execution import ProgressReport, StepRun
from tasks.ingest import dataset_recipe
from xcore.data.readers.generated import GeneratedReader
from xcore.data.source import Source
from xcore.errors import ConfigError


@pytest.mark.parametrize("name", ["prefect.flow_runs", "prefect.task_runs"])
@pytest.mark.parametrize(
    ("error", "has_traceback"), [(ConfigError("a wrong option"), False), (KeyError("a bug"), True)]
)
def test_only_a_bug_is_logged_with_its_traceback(
    name: str, error: Exception, has_traceback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, told = logging.getLogger(name), list[logging.LogRecord]()
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", told.append)
    monkeypatch.setattr(logger, "handlers", [handler])  # Prefect's own would ask for a flow run
    monkeypatch.setattr(logger, "propagate", False)
    try:
        raise error
    except (ConfigError, KeyError):
        logger.error("it failed", exc_info=True)
    assert [bool(record.exc_info) for record in told] == [has_traceback]


def test_progress_from_a_thread_of_the_step_belongs_to_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    task_run, seen = ContextVar[str]("task_run", default="none"), list[str]()

    def created(*_: Any, **__: Any) -> str:
        seen.append(task_run.get())
        return "report"

    monkeypatch.setattr(execution, "create_progress_artifact", created)
    monkeypatch.setattr(execution, "update_progress_artifact", created)
    monkeypatch.setattr(execution, "SECONDS_BETWEEN_REPORTS", -1.0)
    task_run.set("mine")
    recipe = dataset_recipe(Source(reader=GeneratedReader()), 0)
    report = ProgressReport(StepRun(recipe, "ingest", "ingest", None, Event()))
    for step in (1, 2):
        thread = Thread(target=report, args=(step, 2))
        thread.start()
        thread.join()
    assert seen == ["mine", "mine"]


def test_a_server_that_is_gone_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[float]()

    def refused(progress: float, *_: Any, **__: Any) -> None:
        tried.append(progress)
        raise httpx.ConnectError("Connection refused")

    monkeypatch.setattr(execution, "create_progress_artifact", refused)
    monkeypatch.setattr(execution, "SECONDS_BETWEEN_REPORTS", -1.0)
    recipe = dataset_recipe(Source(reader=GeneratedReader()), 0)
    report = ProgressReport(StepRun(recipe, "ingest", "ingest", None, Event()))
    report(1, 2)
    report(2, 2)
    assert tried == [50.0, 100.0], "each report tries again, and none stops the step"


def test_a_report_waits_for_a_server_that_comes_back_and_does_without_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(execution, "PAUSES", (0.0, 0.0))
    tries = list[int]()

    def answered_at(number: int) -> None:
        tries.append(number)
        if len(tries) < number:
            raise httpx.ConnectError("Connection refused")

    execution.patiently(partial(answered_at, 3))
    assert (len(tries), caplog.text) == (3, "")
    tries.clear()
    execution.patiently(partial(answered_at, 9))
    assert len(tries) == 3
    assert "a report is missing there" in caplog.text
