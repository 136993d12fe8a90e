"""Fixtures that all tests may use: real data where it is, and real servers on loopback, stopped by id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flows.operations.postgres import postgres_server
from tasks.settings import store
from xcore.artifacts import Artifact, Recipe
from xcore.errors import ConfigError

ROOT = Path(__file__).parents[1]
CLOSED = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
os.environ.update(CLOSED)

# Tests never assert a time, and a first example may compile.
settings.register_profile("eyrie", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("eyrie")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Recipe], Artifact]:
    """Make a recipe and all that it needs, in a store of the test's own."""
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))

    def made(recipe: Recipe) -> Artifact:
        return [store().make(step).artifact for step in recipe.lineage()][-1]

    return made


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of a real dataset, or a skip that says why."""

    def folder(name: str) -> Path:
        path = Path(os.environ.get("XC_DATA", ROOT.parent / "shared" / "data")) / name
        if not path.is_dir():
            pytest.skip(f"real dataset {name} is neither in ../shared/data nor where XC_DATA points")
        return path

    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(server: subprocess.Popen[bytes], url: str, log: Path, seconds: float = 300) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        assert server.poll() is None, f"server ended with {server.returncode}:\n{log.read_text()[-3000:]}"
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"no answer from {url}:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prefect server; the value is its API address."""
    home, port = tmp_path_factory.mktemp("prefect-server"), free_port()
    log = home / "server.log"
    words = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as stream:
        environment = os.environ | {"PREFECT_HOME": str(home)}
        server = subprocess.Popen(words, env=environment, stdout=stream, stderr=stream)
        try:
            wait_until_healthy(server, f"http://127.0.0.1:{port}/api/health", log)
            yield f"http://127.0.0.1:{port}/api"
        finally:
            server.terminate()
            server.wait()


def let_everyone_pass(folder: Path) -> Path:
    """Open the way to a folder of pytest's: as root, PostgreSQL runs as another user."""
    for path in (folder, *folder.parents):
        if os.geteuid() == 0 and path != Path(tempfile.gettempdir()) and path.is_relative_to(tempfile.gettempdir()):
            path.chmod(path.stat().st_mode | 0o011)
    return folder


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL cluster of its own; the value is ``user:password@host:port`` of its superuser."""
    try:
        with postgres_server(let_everyone_pass(tmp_path_factory.mktemp("postgres")) / "own") as server:
            yield f"{server.user}:{server.password}@{server.host}:{server.port}"
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real MLflow server on SQLite; the value is its address."""
    home, port = tmp_path_factory.mktemp("mlflow-server"), free_port()
    log = home / "server.log"
    words = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}", "--artifacts-destination", str(home / "files")),
    ]
    with log.open("wb") as stream:
        server = subprocess.Popen(words, stdout=stream, stderr=stream, start_new_session=True)
        try:
            wait_until_healthy(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
