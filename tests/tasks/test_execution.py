"""How steps are told to Prefect."""

import logging

import pytest

from tasks import execution  # noqa: F401  it keeps tracebacks out of Prefect's logs
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
