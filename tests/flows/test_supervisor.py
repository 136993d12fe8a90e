"""Supervised processes: what ends by itself is started again, and the logs of earlier starts stay."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.operations import supervisor as module
from flows.operations.supervisor import Supervisor
from tests.workplace import ROOT, Workplace

SLEEP = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
PARENT = [sys.executable, "-S", "-c", f"import subprocess; subprocess.run({SLEEP!r})"]
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


@pytest.mark.parametrize("go_on", [False, True])
def test_the_children_of_a_process_that_dies_are_ended_or_go_on_until_all_is_stopped(
    go_on: bool, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    supervisor.start("server", PARENT, os.environ, children_go_on=go_on)
    (parent,) = supervisor.processes
    while not (children := psutil.Process(parent).children()):
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    assert ended(supervisor, [])
    assert children[0].is_running() == go_on
    supervisor.stop()
    assert not psutil.wait_procs(children, timeout=10)[1]


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


SERVE = """
import sys, time
from flows.operations.services import _only_one
from xcore.errors import EyrieError
input()  # all begin at once, when their modules are loaded
try:
    with _only_one():
        print("serves", flush=True)
        input()
except EyrieError as error:
    print(error, flush=True)
"""


def test_of_several_services_started_at_once_on_one_work_folder_one_serves(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", SERVE],
            cwd=ROOT,
            env=workplace.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for rival in rivals:
        print(file=rival.stdin, flush=True)
    said = sorted(str(rival.stdout and rival.stdout.readline()) for rival in rivals)
    for rival in rivals:
        rival.communicate("\n", timeout=60)
    assert said[0] == "serves\n"
    assert all(text.startswith(f"the services of {tmp_path} are running already") for text in said[1:])
