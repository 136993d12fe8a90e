"""docs/operations.md, run as a person would, every `sh` block in order; and what else it promises of the services."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from flows.operations.postgres import find_programs
from tests.conftest import free_port, let_everyone_pass
from tests.workplace import ROOT, Workplace
from xcore.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("services")]

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "operations.md").read_text(), re.M | re.S)
READY = {"make serve": "Ctrl-C stops everything", "eyrie models serve": "Uvicorn running on"}
SECONDS_TO_START = 900
SECONDS_TO_STOP = 90
SCRIPTS = Path(sys.executable).parent
LONG_RUN = {
    "name": "long",
    "data": {"reader": {"kind": "generated", "n_train": 400_000, "n_test": 100, "n_labels": 20_000}},
    "model": {"kind": "parabel", "n_trees": 3},
}


class Terminal:
    """A shell that keeps its variables from block to block, in a work folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.workplace = Workplace(folder / "home", PYTHONPATH=str(ROOT), **environment)
        self._folder = folder
        self._variables = folder / "variables"
        self._variables.touch()
        self._ports = f"--prefect-port {free_port()} --mlflow-port {free_port()}"
        self._words = {".venv/bin/activate": f"{SCRIPTS}/activate", "5001": str(free_port())}

    def run(self, block: str) -> str:
        done = subprocess.run(
            self._shell(block),
            cwd=ROOT,
            env=self.workplace.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def running(self, block: str, ready: str) -> Iterator[int]:
        """A program in a terminal of its own, until it is interrupted; the value is its process group."""
        log = self._folder / f"{ready.split(maxsplit=1)[0]}.log"
        with log.open("wb") as out:
            environment = self.workplace.environment
            process = subprocess.Popen(
                self._shell(block), cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            limit = time.monotonic() + SECONDS_TO_START
            while ready not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < limit, log.read_text()
                time.sleep(0.3)
            yield process.pid
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
            process.wait(timeout=SECONDS_TO_STOP)

    def _shell(self, block: str) -> list[str]:
        for word, here in self._words.items():
            block = block.replace(word, here)
        # The environment of these tests stands already: make must not install it again. Usual ports may be taken.
        given = f'-o "{SCRIPTS.parent}/.ready" VENV="{SCRIPTS.parent}" OPTIONS="{self._ports}"'
        make = f'make() {{ command make {given} "$@"; }}'
        return ["bash", "-ec", f". {self._variables}\n{make}\n{block}\nexport -p > {self._variables}"]


def processes_of(home: Path) -> list[str]:
    """Command lines of all processes that were started for a work folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EYRIE_HOME") == str(home):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def wait_for(condition: Callable[[], Any], seconds: float = 600) -> Any:
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(1)
    return value


def flow_runs(home: Path, deployment: str) -> list[tuple[str, bool]]:
    """State, and whether a schedule made it, of every run of a deployment, read from the server's own records."""
    query = """select r.state_type, r.auto_scheduled from flow_run r join deployment d on r.deployment_id = d.id
               where d.name = ? and r.expected_start_time < datetime('now', '+1 minute') order by r.created"""
    with sqlite3.connect(home / "prefect" / "prefect.db") as records:
        return [(state, bool(scheduled)) for state, scheduled in records.execute(query, (deployment,))]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(tmp_path_factory.mktemp("operations"))


@pytest.fixture(scope="module")
def services(terminal: Terminal) -> Iterator[int]:
    assert BLOCKS[0] == "make serve\n"
    with terminal.running(BLOCKS[0], READY["make serve"]) as group:
        terminal.run(BLOCKS[1])
        yield group


def test_the_page_leads_to_a_scheduled_promoted_served_model(terminal: Terminal, services: int) -> None:
    answers: list[str] = []
    blocks = iter(BLOCKS[2:])
    for block in blocks:
        if block.startswith("eyrie models serve"):
            with terminal.running(block, READY["eyrie models serve"]):
                answers.append(terminal.run(next(blocks)))
        else:
            terminal.run(block)
    versions = json.loads(terminal.run("eyrie models ls demo --json"))
    assert {version["version"]: "champion" in version["aliases"] for version in versions} == {1: True, 2: False}
    (served,) = [json.loads(answer)["predictions"] for answer in answers]
    assert len(served[0]["labels"]) == 3
    scores = pq.read_table(terminal.workplace.home / "scores" / "demo.parquet")
    assert scores.num_rows == 2
    assert flow_runs(terminal.workplace.home, "score-demo") == [("COMPLETED", False)]


def test_a_schedule_fires(terminal: Terminal, services: int) -> None:
    terminal.run("prefect deployment schedule create simulate/simulate-regression --interval 15")

    def fired() -> bool:
        return ("COMPLETED", True) in flow_runs(terminal.workplace.home, "simulate-regression")

    wait_for(fired)
    assert fired()
    terminal.run("prefect deployment schedule clear simulate/simulate-regression --accept-yes")


def test_deploy_removes_what_left_the_file_and_nothing_else(terminal: Terminal, services: int) -> None:
    code = (
        "from flows.studies import simulate\n"
        "for name, tags in {'left': ['eyrie'], 'foreign': []}.items():\n"
        "    simulate.to_deployment(name, tags=tags).apply(work_pool_name='local')\n"
    )
    terminal.run(f'python -c "{code}"')
    said = terminal.run("eyrie deploy")
    assert "removed left" in said
    assert "foreign" not in said
    listed = terminal.run("prefect deployment ls")
    assert "simulate/foreign" in listed
    assert "simulate/left" not in listed
    terminal.run("prefect deployment delete simulate/foreign")


def test_a_second_set_of_services_is_refused(terminal: Terminal, services: int) -> None:
    done = terminal.workplace.run("serve")
    assert done.returncode == 2
    assert "running already at http://127.0.0.1:" in done.stderr


def test_one_interrupt_in_the_middle_of_a_run_ends_everything(terminal: Terminal, services: int) -> None:
    home = terminal.workplace.home
    terminal.run(f"prefect deployment run pipeline/pipeline-demo --param 'params={json.dumps(LONG_RUN)}'")
    store = home / "store" / "dataset"
    before = len(list(store.glob("*")))
    wait_for(lambda: len(list(store.glob("*"))) > before)
    os.killpg(services, signal.SIGINT)
    wait_for(lambda: processes_of(home) == [], seconds=3 * SECONDS_TO_STOP)
    assert flow_runs(home, "pipeline-demo")[-1] == ("CRASHED", False)
    assert terminal.workplace.run("env").stdout.count("PREFECT_API_URL") == 0


def test_the_same_on_postgres_behind_a_password(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        find_programs()
    except ConfigError as error:
        pytest.skip(str(error))
    folder = let_everyone_pass(tmp_path_factory.mktemp("on-postgres"))
    terminal = Terminal(folder, EYRIE_AUTH="keeper:a-long-password")
    home = terminal.workplace.home
    with terminal.running("make serve PROFILE=postgres\n", READY["make serve"]):
        terminal.run(BLOCKS[1])
        terminal.run("prefect deployment run simulate/simulate-regression --watch")
        prefect, mlflow = re.findall(r"=(http://127\.0\.0\.1:\d+)", terminal.run("eyrie env"))
        assert refused(f"{prefect}/api/admin/version"), "nobody else may come in"
        assert refused(f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=1")
        assert home.stat().st_mode & 0o077 == (0o010 if os.geteuid() == 0 else 0), "its group may pass"
        assert not (home / "mlflow.db").exists()
        assert not (home / "prefect" / "prefect.db").exists()
        assert "a-long-password" not in " ".join(processes_of(home)), "command lines can be read by everyone"
    assert processes_of(home) == []
    assert not (home / "postgres" / "cluster" / "postmaster.pid").exists()


def refused(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    return False


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--host", "192.0.2.1")])
def test_nothing_listens_beyond_loopback_without_a_password(words: tuple[str, ...], tmp_path: Path) -> None:
    done = Workplace(tmp_path / "home").run("serve", *words)
    assert done.returncode == 2
    assert "set EYRIE_AUTH=user:password" in done.stderr


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = Workplace(tmp_path / "home").run("serve", "--mlflow-port", str(port))
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in done.stderr
