"""The program `eyrie`, installed from a wheel, in a folder where the user keeps packages of the same names."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import free_port
from tests.installed import Installed, install_wheel, write_hostile_packages
from tests.workplace import ROOT, SMALL, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("services")]

PACKAGES = ("flows", "tasks", "xcore")
SECONDS_TO_START = 900
DEPLOYMENT = {
    "name": "simulate-here",
    "description": "A simulation.",
    "entrypoint": "flows.studies.simulate",
    "tags": ["eyrie"],
    "work_pool": {"name": "local", "work_queue_name": "training"},
    "preset": "simulate.yaml",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: two presets, and packages with our names."""
    write_hostile_packages(tmp_path / "user")
    presets = ROOT / "deployments" / "presets"
    shutil.copy(presets / "demo.yaml", tmp_path / "user")
    shutil.copy(presets / "simulate-regression.yaml", tmp_path / "user" / "simulate.yaml")
    return tmp_path / "user"


class Program:
    """The program in the user's folder; `sources` are where its packages are found."""

    def __init__(self, installed: Installed, folder: Path, sources: Path) -> None:
        self.folder, self._program = folder, installed.program
        self.environment = Workplace(folder / "work", PYTHONPATH=str(sources)).environment

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(self._program), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said


@pytest.fixture
def program(installed: Installed, folder: Path) -> Program:
    return Program(installed, folder, installed.site)


@pytest.fixture
def services(program: Program) -> Iterator[Program]:
    """`eyrie serve` in the user's folder, ended as a supervisor would."""
    (program.folder / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [DEPLOYMENT]}))
    ports = ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    process = program.start("serve", *ports)
    assert process.stdout
    said = []
    while "Ctrl-C stops everything" not in (line := process.stdout.readline()):
        said.append(line)
        assert line, "".join(said)
    yield program
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_wheel_holds_the_packages_their_types_and_what_they_read(installed: Installed) -> None:
    tops = {name.split("/")[0] for name in installed.names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= installed.names
    sources = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert sources <= installed.names
    assert "flows/operations/server.yaml" in installed.names


def test_the_shadow_is_real(folder: Path) -> None:
    """`python -m flows` cannot know better: the current folder goes first."""
    done = subprocess.run([sys.executable, "-m", "flows"], cwd=folder, capture_output=True, text=True, check=False)
    assert "of the user was imported" in done.stderr


def test_a_pipeline_runs_beside_packages_of_the_same_names(installed: Installed, folder: Path) -> None:
    here = Program(installed, folder, ROOT)  # its kernels are compiled already
    settings = [word for setting in SMALL for word in ("--set", setting)]
    code, said = here.run("pipeline", "demo.yaml", "--json", *settings)
    assert code == 0, said
    assert json.loads(said.splitlines()[-1])["metrics"]


def test_a_deployment_runs_in_a_worker_beside_packages_of_the_same_names(services: Program) -> None:
    words = ["-P", "-m", "prefect", "deployment", "run", "simulate/simulate-here", "--watch"]
    code, exported = services.run("env")
    assert code == 0
    reached = dict(line.removeprefix("export ").split("=", 1) for line in exported.splitlines())
    done = subprocess.run(
        [sys.executable, *words],
        cwd=services.folder,
        env=services.environment | reached,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    log = (services.folder / "work" / "logs" / "worker.log").read_text()
    assert done.returncode == 0, done.stdout + log
    assert "of the user was imported" not in log
    code, said = services.run("artifacts", "ls", "--json")
    assert code == 0, said
    assert "simulation" in {made["kind"] for made in json.loads(said)}


def test_a_supervisors_stop_ends_the_program_as_ctrl_c_does(program: Program) -> None:
    process = program.start("simulate", "simulate.yaml")
    limit = time.monotonic() + SECONDS_TO_START
    while not (program.folder / "work" / "prefect" / "prefect.db").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "finished steps are kept" in said


def test_without_a_file_of_deployments_the_server_still_gets_its_queues(program: Program, prefect_server: str) -> None:
    program.environment["PREFECT_API_URL"] = prefect_server
    code, said = program.run("deploy")
    assert code == 2
    assert f"prefect.yaml was not found in {program.folder}" in said
    code, said = program.run("deploy", "--no-worker-runs")
    assert code == 0, said
    assert "no deployments were applied" in said
