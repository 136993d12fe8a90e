"""Supervised processes: what ends by itself is started again, and the logs of earlier starts stay."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.operations import supervisor as module
from flows.operations.supervisor import Supervisor

SLEEP = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
END = [sys.executable, "-S", "-c", "import sys; print('last words', flush=True); sys.exit(3)"]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "logs")
    yield made
    made.stop()


def ended(supervisor: Supervisor, told: list[str]) -> bool:
    """Whether a process was started again within a while."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if supervisor.keep_running(told.append):
            return True
        time.sleep(0.01)
    return False


def test_a_process_that_dies_is_started_again_and_the_others_go_on(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    supervisor.start("server", SLEEP, os.environ)
    supervisor.start("worker", SLEEP, os.environ)
    server, worker = supervisor.processes
    os.kill(worker, signal.SIGKILL)
    told: list[str] = []
    assert ended(supervisor, told)
    assert supervisor.processes[0] == server
    assert supervisor.processes[1] != worker
    assert len(told) == 1
    assert told[0].startswith("worker stopped by itself with exit code -9; starting it again in 0.05 s")
    assert not supervisor.keep_running(told.append)


def test_the_pause_before_a_new_start_grows_up_to_a_limit(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.04)
    supervisor.start("worker", END, os.environ)
    told: list[str] = []
    for _ in range(4):
        assert ended(supervisor, told)
    assert [text.split(" s;")[0].split()[-1] for text in told] == ["0.01", "0.02", "0.04", "0.04"]
    assert "last words" in told[0]


def test_logs_of_earlier_starts_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGS_KEPT", 2)
    for number in range(4):
        supervisor = Supervisor(tmp_path)
        supervisor.call("deploy", [sys.executable, "-S", "-c", f"print({number})"], os.environ)
    logs = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert logs == {"deploy.log": "3", "deploy.log.1": "2", "deploy.log.2": "1"}
