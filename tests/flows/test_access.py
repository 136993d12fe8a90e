"""Who gets in: real servers tried with foreign names and from foreign pages, and the modes of what commands write."""

import base64
import http.client
import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.conftest import free_port
from tests.workplace import ROOT, SMALL, Workplace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("services")]

AUTH = "keeper:a-long-password"
PUBLIC = "eyrie.example.org"
FOREIGN = "evil.example"
SOCKETS = (
    *("/api/events/in", "/api/events/out", "/api/logs/out"),
    *("/api/task_runs/subscriptions/scheduled", "/api/work_pools/local/workers/connect"),
)
PROGRAM = {"ui", "code", "pyfunc.py"}
SECONDS = 300
INTERRUPTED = 130
OPEN = {"/health", "/favicon.ico", "/static-files/x", "/api/3.0/mlflow/server-info", "/ajax-api/3.0/mlflow/server-info"}
MLFLOW_ROUTES = """
import json, re
from mlflow.server import app
from mlflow.server.auth import create_app
from mlflow.server.fastapi_app import create_fastapi_app

create_app(app)
flask = [(rule.rule, method) for rule in app.url_map.iter_rules() for method in rule.methods]
paths = create_fastapi_app(app).openapi()["paths"]
native = [(path, method.upper()) for path, methods in paths.items() for method in methods]
print(json.dumps(sorted({(re.sub("[<{].*?[>}]", "x", path), method) for path, method in flask + native})))
"""


@dataclass(frozen=True)
class Caller:
    """Speaks to a server of this machine under any name, and as a page of any site."""

    port: int
    host: str | None = None
    origin: str | None = None
    auth: str | None = AUTH

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Host": self.host or f"127.0.0.1:{self.port}"}
        if self.origin:
            headers["Origin"] = self.origin
        if self.auth:
            headers["Authorization"] = f"Basic {base64.b64encode(self.auth.encode()).decode()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        status, text = answer.status, answer.read().decode(errors="replace")
        connection.close()
        return status, text

    def open_socket(self, path: str) -> str:
        """What a WebSocket says first, or the status by which it was refused."""
        address = f"ws://{self.host or f'127.0.0.1:{self.port}'}{path}"
        wire = socket.create_connection(("127.0.0.1", self.port))
        origin = Origin(self.origin) if self.origin else None
        try:
            with connect(
                address, sock=wire, origin=origin, subprotocols=[Subprotocol("prefect")], proxy=None, open_timeout=60
            ) as opened:
                opened.send(json.dumps({"type": "auth", "token": self.auth}))
                return str(json.loads(opened.recv(timeout=60))["type"])
        except InvalidStatus as refusal:
            return str(refusal.response.status_code)


def strangers(port: int) -> list[Caller]:
    """A page after DNS rebinding, pages of another site, a sandboxed page, a page of another program here."""
    return [
        Caller(port, f"{FOREIGN}:{port}"),
        Caller(port, f"{FOREIGN}:{port}", f"http://{FOREIGN}:{port}"),
        Caller(port, None, f"http://{FOREIGN}"),
        Caller(port, None, "null"),
        Caller(port, None, "http://localhost:3000"),
    ]


def friends(port: int) -> list[Caller]:
    """A program, the server's own pages under each of its names, and a proxy with TLS."""
    return [
        Caller(port),
        Caller(port, None, f"http://127.0.0.1:{port}"),
        Caller(port, f"localhost:{port}", f"http://localhost:{port}"),
        Caller(port, None, f"http://localhost:{port}"),
        Caller(port, PUBLIC, f"https://{PUBLIC}"),
    ]


@dataclass(frozen=True)
class Services:
    """`python -m flows serve` in a work folder that was open to everyone before."""

    workplace: Workplace
    prefect: int
    mlflow: int
    log: Path


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("access")
    home = folder / "home"
    home.mkdir()
    home.chmod(0o755)
    workplace = Workplace(home, EYRIE_AUTH=AUTH, EYRIE_TRUSTED_HOSTS=PUBLIC)
    running = Services(workplace, free_port(), free_port(), folder / "serve.log")
    ports = ("--prefect-port", str(running.prefect), "--mlflow-port", str(running.mlflow))
    with started(workplace, running.log, "Ctrl-C stops everything", "serve", *ports):
        yield running


@contextmanager
def started(workplace: Workplace, log: Path, ready: str, *words: str) -> Iterator[None]:
    """A command that runs until the block is left; it is ready when its log says so."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows", *words], cwd=ROOT, env=workplace.environment, stdout=out, stderr=out
        )
    try:
        limit = time.monotonic() + SECONDS
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.2)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=SECONDS)


def open_to_others(folder: Path) -> dict[str, str]:
    """Files and folders that another account may read, write or enter, with their modes.

    Copies of program files are left out: Prefect's pages and the code of a registered model keep the modes that they
    were installed with. They are no secret, and they lie in a closed folder.
    """
    found = (path for path in folder.rglob("*") if not path.is_symlink() and not PROGRAM & set(path.parts))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *found)}
    return {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}


def test_prefect_lets_its_own_names_in(services: Services) -> None:
    for caller in friends(services.prefect):
        assert caller.ask("/")[0] == 200, caller
        assert caller.ask("/api/admin/version")[0] == 200, caller
        assert [caller.open_socket(path) for path in SOCKETS] == ["auth_success"] * len(SOCKETS), caller
    assert json.loads(Caller(services.prefect).ask("/ui-settings")[1])["api_url"] == "/api", "a page asks who sent it"


def routes_of_prefect(services: Services) -> list[tuple[str, str]]:
    paths = json.loads(Caller(services.prefect).ask("/api/openapi.json")[1])["paths"]
    routes = [(f"/api{path.removeprefix('/api')}", name.upper()) for path, names in paths.items() for name in names]
    assert len(routes) > 150
    return routes


def test_every_route_and_socket_of_prefect_refuses_strangers(services: Services) -> None:
    routes = [("/", "GET"), ("/api/csrf-token?client=x", "GET"), *routes_of_prefect(services)]
    for caller in strangers(services.prefect):
        for path, method in routes:
            status, text = caller.ask(path, method, None if method == "GET" else {})
            assert (status, text[:8]) == (403, "refused:"), (caller, path)
        assert [caller.open_socket(path) for path in SOCKETS] == ["403"] * len(SOCKETS), caller


def test_every_route_and_socket_of_prefect_asks_for_the_password(services: Services) -> None:
    caller = Caller(services.prefect, auth=None)
    for path, method in routes_of_prefect(services):
        status, _ = caller.ask(path, method, None if method == "GET" else {})
        assert status in (401, 403) or path in ("/api/health", "/api/ready"), (path, method, status)
    for path in SOCKETS:
        with pytest.raises(ConnectionClosedError, match="1008"):
            caller.open_socket(path)


def test_mlflow_refuses_a_foreign_name_and_what_a_foreign_page_would_change(services: Services) -> None:
    search = ("/ajax-api/2.0/mlflow/experiments/search", "POST", {"max_results": 1})
    for caller in friends(services.mlflow):
        assert caller.ask("/")[0] == 200, caller
        assert caller.ask(*search)[0] == 200, caller
    for caller in (Caller(services.mlflow, FOREIGN), Caller(services.mlflow, f"{FOREIGN}:{services.mlflow}")):
        assert caller.ask("/")[0] == 403, caller
        assert caller.ask(*search)[0] == 403, caller
    for origin in (f"http://{FOREIGN}", "null"):
        assert Caller(services.mlflow, None, origin).ask(*search)[0] == 403
        query = {"query": "query { mlflowSearchRuns(input: {}) { runs { info { runId } } } }"}
        assert Caller(services.mlflow, None, origin).ask("/graphql", "POST", query)[0] == 403
        assert Caller(services.mlflow, None, origin).ask("/")[0] == 403


def test_every_route_of_mlflow_refuses_strangers_and_callers_without_the_password(services: Services) -> None:
    settings = {"MLFLOW_AUTH_CONFIG_PATH": str(services.workplace.home / "mlflow-users.ini")}
    secrets = {"MLFLOW_AUTH_ADMIN_PASSWORD": "another-password", "MLFLOW_FLASK_SERVER_SECRET_KEY": "any"}
    environment = services.workplace.environment | settings | secrets
    words = [sys.executable, "-c", MLFLOW_ROUTES]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    routes = [(path, method) for path, method in json.loads(told.splitlines()[-1]) if method not in ("HEAD", "OPTIONS")]
    assert len(routes) > 400
    for path, method in routes:
        body = None if method == "GET" else {}
        for caller in (Caller(services.mlflow, FOREIGN), Caller(services.mlflow, None, f"http://{FOREIGN}")):
            status, text = caller.ask(path, method, body)
            assert (status, text[:8]) == (403, "refused:"), (caller, path, method)
        status, _ = Caller(services.mlflow, auth=None).ask(path, method, body)
        assert status in (401, 403) or path in OPEN, (path, method, status)


def test_a_password_closes_an_open_work_folder_and_says_so(services: Services) -> None:
    home = services.workplace.home
    assert f"closed {home} to other accounts (mode 0755, now 0700)" in services.log.read_text()
    assert (home / "mlflow-users.db").stat().st_size > 0
    assert open_to_others(home) == {}


def test_a_killed_worker_is_started_again_while_the_servers_go_on(services: Services) -> None:
    home = services.workplace.home

    def processes() -> list[int]:
        return [mark[0] for mark in json.loads((home / "services.json").read_text())["processes"]]

    before, limit = processes(), time.monotonic() + SECONDS
    psutil.Process(before[2]).kill()
    while (now := processes()) == before:
        assert time.monotonic() < limit
        time.sleep(0.2)
    assert now[:2] == before[:2]
    assert psutil.pid_exists(now[2])
    assert "worker stopped by itself with exit code -9; starting it again in 1 s" in services.log.read_text()
    assert (home / "logs" / "worker.log.1").exists()
    assert Caller(services.prefect).ask("/api/admin/version")[0] == 200


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A work folder that a command made, with a champion in it."""
    workplace = Workplace(tmp_path_factory.mktemp("trained") / "home")
    changes = [word for change in (*SMALL, "model.kind=ova") for word in ("--set", change)]
    done = workplace.run("retrain", "deployments/presets/demo.yaml", *changes)
    assert done.returncode == 0, done.stderr
    return workplace


def test_what_commands_write_is_closed_to_other_accounts(trained: Workplace) -> None:
    assert len(list(trained.home.rglob("*"))) > 20
    assert open_to_others(trained.home) == {}


def test_the_served_champion_refuses_strangers(trained: Workplace, tmp_path: Path) -> None:
    port = free_port()
    rows = {"dataframe_records": [{"indices": [3, 17], "values": [1.0, 2.0]}], "params": {"k": 3}}
    workplace = Workplace(trained.home, EYRIE_TRUSTED_HOSTS=PUBLIC, EYRIE_AUTH=AUTH)
    words = ("models", "serve", "demo", "--port", str(port))
    with started(workplace, tmp_path / "serve.log", "Uvicorn running on", *words):
        for caller in friends(port):
            status, text = caller.ask("/invocations", "POST", rows)
            assert status == 200, text
            assert len(json.loads(text)["predictions"][0]["labels"]) == 3
        for caller in strangers(port):
            for path in ("/invocations", "/ping", "/health", "/version", "/docs", "/", "/api/model", "/metrics"):
                method, body = ("POST", rows) if path == "/invocations" else ("GET", None)
                assert caller.ask(path, method, body)[0] == 403, (caller, path)
        for auth in (None, "keeper:another-password", "nobody:a-long-password"):
            assert Caller(port, auth=auth).ask("/invocations", "POST", rows)[0] == 401
            assert Caller(port, auth=auth).ask("/ping")[0] == 200


def test_a_model_is_not_served_beyond_loopback_without_a_password(trained: Workplace) -> None:
    done = trained.run("models", "serve", "demo", "--host", "0.0.0.0")
    assert (done.returncode, "EYRIE_AUTH=user:password" in done.stderr) == (2, True), done.stderr


def test_a_version_that_is_not_there_is_not_served(trained: Workplace) -> None:
    done = trained.run("models", "serve", "demo", "--version", "7")
    assert done.returncode == 2
    assert "no version '7' of the registered model 'demo'" in done.stderr


def test_prefects_embedded_server_asks_for_the_commands_password(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home")
    process = workplace.start(*workplace.words("data.reader.n_train=20_000"))  # longer than the questions take
    try:
        caller = Caller(embedded_server(process.pid), auth=None)
        assert caller.ask("/api/admin/version")[0] == 401
        assert caller.ask("/api/flows/", "POST", {"name": "written by a page"})[0] == 401
        with pytest.raises(ConnectionClosedError, match="Auth required"):
            caller.open_socket("/api/events/in")
    finally:
        process.terminate()  # the run is not what is tested
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode in (0, INTERRUPTED), told


def embedded_server(command: int) -> int:
    """The port on which a child of a command listens, as soon as it does."""
    limit = time.monotonic() + SECONDS
    while True:
        children = psutil.Process(command).children(recursive=True)
        if ports := {port for child in children for port in listening(child)}:
            return ports.pop()
        assert time.monotonic() < limit
        time.sleep(0.1)


def listening(process: psutil.Process) -> list[int]:
    return [wire.laddr.port for wire in process.net_connections("inet") if wire.status == psutil.CONN_LISTEN]


@pytest.mark.parametrize(("auth", "umask", "expected"), [
    ("", "", 0o755),
    (AUTH, "", 0o700),
    (AUTH, "027", 0o750),
    (AUTH, "022", 0o755),
])  # fmt: skip
def test_an_open_work_folder_is_closed_as_far_as_it_is_not_shared(
    auth: str, umask: str, expected: int, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    done = Workplace(home, EYRIE_AUTH=auth, EYRIE_UMASK=umask).run("env")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(home.stat().st_mode) == expected
    assert ("closed" in done.stderr) == (expected != 0o755)


def test_a_work_folder_can_be_shared_with_a_group(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = Workplace(home, EYRIE_UMASK="027").run("models", "ls", "demo")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(home.stat().st_mode) == 0o750
    assert stat.S_IMODE((home / "mlflow.db").stat().st_mode) == 0o640


@pytest.mark.parametrize("umask", ["7", "0o77", "700", "abc"])
def test_a_umask_that_is_none_is_an_error(umask: str, tmp_path: Path) -> None:
    done = Workplace(tmp_path / "home", EYRIE_UMASK=umask).run("env")
    assert done.returncode == 2
    assert f"EYRIE_UMASK is '{umask}'; expected three octal digits" in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("words", [("serve",), ("models", "serve", "demo")])
def test_a_trusted_name_that_is_none_is_an_error(words: tuple[str, ...], tmp_path: Path) -> None:
    done = Workplace(tmp_path / "home", EYRIE_TRUSTED_HOSTS="*").run(*words)
    assert done.returncode == 2
    assert "EYRIE_TRUSTED_HOSTS: '*' is not the name of a host" in done.stderr
