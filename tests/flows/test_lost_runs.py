"""A command that was killed: the next one says so in both dashboards. A busy machine: one message, not a traceback."""

import sqlite3
import time
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.e2e.stack import ask
from tests.workplace import Workplace

pytestmark = pytest.mark.slow

SIMULATE = ("simulate", "deployments/presets/simulate-regression.yaml", "--json", "--set")
UNDER_WAY = ("RUNNING", "PENDING")


def states(home: Path) -> tuple[set[str], set[str]]:
    """States of flow runs and of task runs, read from the records of the embedded API."""
    with sqlite3.connect(home / "prefect" / "prefect.db", timeout=60) as records:
        flows = {state for (state,) in records.execute("select state_type from flow_run")}
        tasks = {state for (state,) in records.execute("select state_type from task_run")}
    return flows, tasks


def statuses(home: Path) -> list[str]:
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("simulate-regression")
    return [run.info.status for run in client.search_runs([experiment.experiment_id])] if experiment else []


def test_a_killed_command_is_told_of_in_mlflow_and_in_prefect_by_the_next_one(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home")
    home = workplace.home
    process = workplace.start(*SIMULATE, "simulation.repetitions=100000")
    limit = time.monotonic() + 300
    while not (home / "mlflow.db").exists() or statuses(home) != ["RUNNING"] or "RUNNING" not in states(home)[1]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, (statuses(home), states(home))
        time.sleep(0.2)
    server = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, left = psutil.wait_procs(server, timeout=60)
    assert left == [], "the embedded API ends with its command"
    process.communicate()
    assert statuses(home) == ["RUNNING"]

    done = workplace.run(*SIMULATE, "seed=1")
    assert done.returncode == 0, done.stderr
    assert sorted(statuses(home)) == ["FINISHED", "KILLED"]
    flows, tasks = states(home)
    assert flows == {"COMPLETED", "CRASHED"}
    assert not tasks & set(UNDER_WAY)


KILLED_EARLY = """
import os, signal, sys
from flows.__main__ import main
from tasks.tracking import TrackedRun
TrackedRun.open = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_a_command_killed_before_its_mlflow_run_is_open_is_marked_in_prefect_too(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home")
    assert workplace.run(*SIMULATE, "seed=1", script=("-c", KILLED_EARLY)).returncode == -9
    assert states(workplace.home)[0] == {"RUNNING"}
    done = workplace.run(*SIMULATE, "seed=2")
    assert done.returncode == 0, done.stderr
    assert states(workplace.home)[0] == {"COMPLETED", "CRASHED"}
    assert list((workplace.home / "runs").iterdir()) == []


OWN_MARK = ("-c", "from tasks.lost_runs import own_process; print(own_process())")
MARKING = ("-P", "-m", "flows.operations.lost_runs")


def test_a_killed_run_that_somebody_retries_waits_for_its_new_process(tmp_path: Path, prefect_server: str) -> None:
    workplace = Workplace(tmp_path / "home", PREFECT_API_URL=prefect_server)
    killed = workplace.run(script=OWN_MARK).stdout.strip()
    flow = ask(f"{prefect_server}/flows/", {"name": "retried"})["id"]
    runs = {}
    for state in ("PENDING", "RUNNING"):
        run = ask(f"{prefect_server}/flow_runs/", {"flow_id": flow, "state": {"type": state}})["id"]
        record = workplace.home / "runs" / run
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(killed)
        runs[state] = run
    done = workplace.run(script=MARKING)
    assert done.returncode == 0, done.stderr
    marked = {state: ask(f"{prefect_server}/flow_runs/{run}")["state_type"] for state, run in runs.items()}
    assert marked == {"PENDING": "PENDING", "RUNNING": "CRASHED"}
    assert list((workplace.home / "runs").iterdir()) == []


def test_an_api_that_does_not_start_in_time_is_one_message(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home", PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="1")
    done = workplace.run(*SIMULATE, "seed=1")
    assert done.returncode == 2
    assert "the embedded Prefect API did not answer within 1 s" in done.stderr
    assert "Run the same command again later" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_api_that_ends_at_its_start_is_noticed_at_once(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home")
    (workplace.home / "prefect").mkdir(parents=True)
    (workplace.home / "prefect" / "prefect.db").write_text("no database at all, " * 100)
    done = workplace.run(*SIMULATE, "seed=1")
    assert done.returncode == 2
    assert "error: the embedded Prefect API ended with exit code" in done.stderr


KILLED_UPGRADE = """
import asyncio, os, signal, sys
from itertools import count
from sqlalchemy import event
from sqlalchemy.engine import Engine
statements = count(1)
def die(*_):
    if next(statements) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(Engine, "before_cursor_execute", die)
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def test_prefects_database_goes_on_after_kills_in_its_creation(tmp_path: Path) -> None:
    """Each of its migrations is a transaction. So it is made in its place, unlike MLflow's."""
    workplace = Workplace(tmp_path / "home", PREFECT_HOME=str(tmp_path / "home" / "prefect"))
    (workplace.home / "prefect").mkdir(parents=True)
    for moment in (30, 800, 3000):
        assert workplace.run(str(moment), script=("-c", KILLED_UPGRADE)).returncode < 0
        assert (workplace.home / "prefect" / "prefect.db").exists()
    done = workplace.run("0", script=("-c", KILLED_UPGRADE))
    assert done.returncode == 0, done.stderr
