"""How steps are told to Prefect."""

import logging
from contextvars import ContextVar
from threading import Event, Thread
from typing import Any

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
