"""`eyrie serve` in a work folder of its own, as a person would start it, and questions to its servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psutil

from tests.conftest import free_port
from tests.workplace import ROOT, Workplace

READY = "Ctrl-C stops everything."
SECONDS_TO_START = 400  # ten would do, but a loaded machine needs many more
SECONDS_TO_STOP = 120
UNAVAILABLE, TRIES = 503, 10  # Prefect's way to say: ask again
SECONDS_FOR_A_RUN = 400
Found = TypeVar("Found")
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Stack:
    """Running services: their addresses, their Prefect API, and the command line pointed at the same work folder."""

    def __init__(self, workplace: Workplace, prefect_port: int, mlflow_port: int) -> None:
        self.workplace = workplace
        self.supervisor = 0  # id of the process of `eyrie serve`
        self.is_killed = False
        self.prefect, self.mlflow = f"http://127.0.0.1:{prefect_port}", f"http://127.0.0.1:{mlflow_port}"
        self._client = f"e2e-{uuid.uuid4()}"  # a token is good for one client only
        self._token = ""

    def api(self, path: str, body: Any = None) -> Any:
        """What the Prefect API answers; with a body, by POST."""
        if body is not None and not self._token:
            self._token = self.api(f"/csrf-token?client={self._client}")["token"]
        known = {"Prefect-Csrf-Client": self._client, "Prefect-Csrf-Token": self._token}
        return ask(f"{self.prefect}/api{path}", body, known if self._token else {})

    def mlflow_api(self, path: str, body: Any = None) -> Any:
        """What the MLflow API answers; with a body, by POST."""
        return ask(f"{self.mlflow}/api/2.0/mlflow/{path}", body)

    def deployment(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"/deployments/name/{name}")
        return found

    def runs(self, **filters: Any) -> list[dict[str, Any]]:
        """Flow runs, the newest first."""
        found: list[dict[str, Any]] = self.api("/flow_runs/filter", {"sort": "START_TIME_DESC", **filters})
        return found

    def finished(self, run_id: str) -> dict[str, Any]:
        """A flow run, when it has ended."""

        def ended() -> dict[str, Any] | None:
            run: dict[str, Any] = self.api(f"/flow_runs/{run_id}")
            return run if run["state_type"] in FINAL else None

        return self.wait_for(ended)

    def wait_for(self, look: Callable[[], Found | None]) -> Found:
        """What `look` finds, as soon as it finds something."""
        limit = time.monotonic() + SECONDS_FOR_A_RUN
        while not (found := look()):
            assert time.monotonic() < limit, f"waited for too long:\n{self.logs()}"
            time.sleep(0.5)
        return found

    def processes(self) -> list[psutil.Process]:
        """The processes of `eyrie serve` and of all that it started."""
        parent = psutil.Process(self.supervisor)
        return [parent, *parent.children(recursive=True)]

    def kill_everything(self) -> None:
        """What a power cut does to the processes."""
        self.is_killed = True
        for process in self.processes():
            process.kill()

    def command(self, *words: str) -> str:
        """Output of a command of ours that must succeed."""
        done = self.workplace.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def logs(self) -> str:
        """The last words of every service."""
        files = sorted((self.workplace.home / "logs").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)


def ask(address: str, body: Any = None, headers: Mapping[str, str] = MappingProxyType({})) -> Any:
    """What a server answers, read as JSON; with a body, by POST."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, dict(headers) | {"Content-Type": "application/json"})
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            if error.code != UNAVAILABLE:
                raise
    raise AssertionError(f"{address} was unavailable {TRIES} times")


@contextmanager
def running_stack(home: Path, *words: str, folder: Path = ROOT) -> Iterator[Stack]:
    """Services started on free ports; at the end one Ctrl-C must stop them all, unless the test killed them."""
    ports = free_port(), free_port()
    workplace = Workplace(home, PREFECT_WORKER_QUERY_SECONDS="2")
    command = [sys.executable, "-m", "flows", "serve", *words]
    command += ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    home.mkdir(parents=True, exist_ok=True)
    output = home / "serve.out"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=workplace.environment, stdout=stream, stderr=stream, start_new_session=True
        )
    family: list[psutil.Process] = []
    stack = Stack(workplace, *ports)
    stack.supervisor = process.pid
    try:
        limit = time.monotonic() + SECONDS_TO_START
        while READY not in output.read_text():
            assert process.poll() is None, output.read_text() + stack.logs()
            assert time.monotonic() < limit, output.read_text() + stack.logs()
            time.sleep(0.2)
        yield stack
        if stack.is_killed:
            return
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_TO_STOP) == 0, output.read_text()
        _, left = psutil.wait_procs(family, timeout=10)
        assert left == [], f"Ctrl-C left {[member.cmdline() for member in left]}"
    finally:
        _end(process, family)


def _end(process: subprocess.Popen[bytes], family: list[psutil.Process]) -> None:
    """Nothing is left behind, also where a test failed: first by a polite request, then by force."""
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for member in psutil.wait_procs(family, timeout=5)[1]:
        member.kill()
