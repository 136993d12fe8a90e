"""MLflow's database survives a kill at any moment of its creation, and two processes that open the same run."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.lost_runs import PROCESS_TAG, end_lost_runs
from tasks.tracking import TrackedRun
from tasks.tracking_client import tracking_client
from xcore.errors import EyrieError

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "tasks" / "killed_tracking.py"
# Moments in which MLflow's own tables are made, moved or renamed. Made in place, most of them left a database that no
# later process could open.
MOMENTS = (1, 60, 350, 550, 750, 950, 1300)


class Process:
    """A process that opens a run in a work folder."""

    def __init__(self, home: Path, uri: str | None = None) -> None:
        # Without an empty database of this machine, so that every process makes its own.
        nothing = {"XDG_CACHE_HOME": str(home / "no-cache")}
        self.environment = os.environ | {"EYRIE_HOME": str(home), "PYTHONPATH": str(ROOT)} | nothing
        self.environment.pop("MLFLOW_TRACKING_URI", None)
        if uri:
            self.environment["MLFLOW_TRACKING_URI"] = uri

    def start(self, *words: str, code: str | None = None) -> "subprocess.Popen[str]":
        program = ["-c", code] if code else [str(SCRIPT)]
        return subprocess.Popen(
            [sys.executable, *program, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, moment: int) -> "subprocess.CompletedProcess[str]":
        process = self.start(str(moment))
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess([], process.returncode, out, err)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_readers_and_a_writer_do_not_wait_for_each_other(home: Path) -> None:
    tracking_client()
    with sqlite3.connect(home / "mlflow.db") as database:
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)


def runs_of(client: MlflowClient) -> list[str]:
    experiment = client.get_experiment_by_name("nest")
    assert experiment
    return [run.info.run_id for run in client.search_runs([experiment.experiment_id])]


@pytest.mark.slow
def test_a_database_whose_creation_was_killed_again_and_again_is_made_by_the_next_command(home: Path) -> None:
    for moment in MOMENTS:
        assert Process(home).run(moment).returncode == -signal.SIGKILL
        assert not (home / "mlflow.db").exists(), "a part of a database is never in its place"
    done = Process(home).run(0)
    assert done.returncode == 0, done.stderr
    assert runs_of(tracking_client()) == [done.stdout.strip()]
    assert [path.name for path in home.glob(".mlflow.db*")] == [], "drafts of killed processes are cleared away"


@pytest.mark.slow
@pytest.mark.parametrize("moment", [350, 750])
def test_a_database_that_was_killed_in_its_place_is_replaced(home: Path, moment: int) -> None:
    """As an earlier version of Eyrie left it, or `mlflow server` started by hand."""
    code = f"import os, sys; sys.argv = ['', '{moment}']\n" + SCRIPT.read_text().replace(
        'print(TrackedRun.open("nest", "0001", "first").id)',
        'from mlflow import MlflowClient; MlflowClient(os.environ["URI"]).search_experiments()',
    )
    process = Process(home)
    process.environment["URI"] = f"sqlite:///{home / 'mlflow.db'}"
    killed = process.start(code=code)
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert (home / "mlflow.db").exists()
    run = TrackedRun.open("nest", "0001", "first")
    assert runs_of(tracking_client()) == [run.id]


def test_a_database_that_holds_runs_is_never_replaced(home: Path) -> None:
    run = TrackedRun.open("nest", "0001", "first")
    with sqlite3.connect(home / "mlflow.db") as database:
        database.execute("delete from alembic_version")  # as an interrupted upgrade by hand may leave it
    tracking_client()
    with sqlite3.connect(home / "mlflow.db") as database:
        assert (run.id,) in database.execute("select run_uuid from runs").fetchall()


def test_a_file_that_is_no_database_is_explained_and_left_alone(home: Path) -> None:
    (home / "mlflow.db").write_text("not a database at all, " * 100)
    with pytest.raises(EyrieError, match=r"mlflow\.db cannot be read: file is not a database.*move it away"):
        tracking_client()
    assert (home / "mlflow.db").read_text().startswith("not a database")


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize("moment", [60, 200, 500])
def test_on_postgres_a_killed_creation_is_gone_on_with(home: Path, postgres: str, moment: int) -> None:
    from flows.operations.postgres import Server

    name = f"killed_{moment}"
    server = Server.parse(f"postgresql://{postgres}")
    server.ensure_database(name)
    process = Process(home, server.url(name, "psycopg2"))
    assert process.run(moment).returncode == -signal.SIGKILL
    done = process.run(0)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_processes_that_open_the_same_run_at_once_open_one(home: Path) -> None:
    both = [Process(home).start("0") for _ in range(2)]
    opened = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], opened
    assert len({out.strip() for out, _ in opened}) == 1
    assert len(runs_of(tracking_client())) == 1


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_the_same_from_two_work_folders_with_one_server(tmp_path: Path, mlflow_server: str) -> None:
    """No lock holds both: the younger run gives way."""
    waiting = f"""
import os, time
from pathlib import Path
import tasks.tracking as tracking
look = tracking._newest_run
def look_together(*words):
    found = look(*words)
    Path(os.environ["EYRIE_HOME"], "looked").touch()
    while len(list(Path({str(tmp_path)!r}).glob("*/looked"))) < 2:
        time.sleep(0.05)
    return found
tracking._newest_run = look_together
print(tracking.TrackedRun.open("nest", "two-folders", "first").id)
"""
    both = [Process(tmp_path / name, mlflow_server).start(code=waiting) for name in ("a", "b")]
    opened = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], opened
    client = MlflowClient(mlflow_server)
    experiment = client.get_experiment_by_name("nest")
    assert experiment
    left = client.search_runs([experiment.experiment_id], "tags.`eyrie.id` = 'two-folders'")
    assert {out.splitlines()[-1] for out, _ in opened} == {run.info.run_id for run in left}
    assert len(left) == 1


@pytest.mark.slow
def test_a_run_whose_process_was_killed_is_ended_and_others_are_not(home: Path) -> None:
    own = TrackedRun.open("nest", "0002", "second")
    code = "import time\nfrom tasks.tracking import TrackedRun\n"
    code += "print(TrackedRun.open('nest', '0003', 'third').id, flush=True)\ntime.sleep(600)"
    other = Process(home).start(code=code)
    assert other.stdout
    run_id = other.stdout.readline().strip()
    client = tracking_client()
    foreign = client.create_run(own.experiment_id, tags={PROCESS_TAG: "elsewhere/pid:[1] 1 0.00"})
    assert end_lost_runs() == []
    assert client.get_run(run_id).info.status == "RUNNING"
    other.kill()  # not yet waited for: it is a zombie, which runs nothing
    client.set_tag(run_id, "eyrie.flow_run_id", "a-flow-run")
    while end_lost_runs() != ["a-flow-run"]:
        assert client.get_run(run_id).info.status == "RUNNING"
    other.communicate()
    assert client.get_run(run_id).info.status == "KILLED"
    assert client.get_run(own.id).info.status == "RUNNING"
    assert client.get_run(foreign.info.run_id).info.status == "RUNNING"
    again = TrackedRun.open("nest", "0003", "third")
    assert again.id == run_id
    assert again.is_reopened
    assert client.get_run(run_id).info.status == "RUNNING"
