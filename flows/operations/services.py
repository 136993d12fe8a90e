"""The services of a work folder: a Prefect server, an MLflow server and a worker, on loopback, until Ctrl-C."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError, model_validator

from flows.operations.postgres import postgres_server
from flows.operations.supervisor import Supervisor, end_processes
from flows.operations.trusted import LOOPBACK, trusted_names, trusted_origins
from tasks import settings
from tasks.empty_databases import PREFECT, fill
from tasks.endpoints import announce, leftovers, retract, running_services
from tasks.settings import AUTH_VARIABLE
from tasks.tracking_client import ensure_tracking_database
from xcore.components import Component
from xcore.errors import ConfigError, EyrieError

MLFLOW_CLIENT_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
POOL = "local"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a supervisor's stop, a terminal that was closed


class ServeOptions(Component):
    """How the services are run."""

    profile: Literal["sqlite", "postgres"] = Field(
        "sqlite", description="Database in which both servers keep their records."
    )
    host: str = Field(LOOPBACK, description="Address to listen on.")
    prefect_port: int | None = Field(
        None, ge=1, le=65535, description="Port of Prefect. Empty: 4200, or a free port if 4200 is taken."
    )
    mlflow_port: int | None = Field(
        None, ge=1, le=65535, description="Port of MLflow. Empty: 5000, or a free port if 5000 is taken."
    )
    auth: str | None = Field(
        None,
        pattern=r"^[^:\s]+:\S{12,}$",
        description="user:password for both servers. The password has at least 12 characters.",
    )

    @model_validator(mode="after")
    def _is_closed(self) -> ServeOptions:
        if not self.auth and not _is_loopback(self.host):
            raise ValueError(
                f"{self.host} can be reached from other machines, and whoever reaches a Prefect server can run code "
                f"there: set {AUTH_VARIABLE}=user:password, or listen on {LOOPBACK}"
            )
        return self

    @classmethod
    def checked(cls, **chosen: Any) -> ServeOptions:
        """The options with the password of the environment, or a `ConfigError`."""
        try:
            return cls(auth=os.environ.get(AUTH_VARIABLE) or None, **chosen)
        except ValidationError as error:
            problems = [(".".join(map(str, problem["loc"])), problem["msg"]) for problem in error.errors()]
            raise ConfigError("\n".join(f"{place}: {text}" if place else text for place, text in problems)) from None


def serve(**chosen: Any) -> int:
    """Start the services, apply the deployments, print the addresses, wait for Ctrl-C, and stop everything."""
    options = ServeOptions.checked(**chosen)
    for number in STOPS:
        signal.signal(number, signal.default_int_handler)
    with _only_one(), _databases(options) as databases:
        plan = _Plan.of(options, databases)
        supervisor = Supervisor(settings.home() / "logs")
        try:
            _start(plan, supervisor)
            while True:
                if supervisor.keep_running(lambda text: print(text, flush=True)):
                    announce(supervisor.processes, plan.client_environment())
                time.sleep(1)
        except KeyboardInterrupt:
            return 0
        finally:
            for number in STOPS:
                signal.signal(number, signal.SIG_IGN)  # once is enough: stopping takes seconds, and ends
            print("stopping ...", flush=True)
            _stop(plan, supervisor)
            retract()


def _stop(plan: _Plan, supervisor: Supervisor) -> None:
    try:
        if supervisor.wind_down("worker"):
            os.environ.update(plan.client_environment())
            from flows.operations.lost_runs import crash_pool_runs

            crash_pool_runs(POOL)
    except Exception as error:  # such as a server that is gone
        print(f"runs could not be marked as Crashed; the next start does it ({type(error).__name__}: {error})")
    finally:
        supervisor.stop()


def print_environment() -> int:
    """Shell commands that set what `prefect` and `mlflow` need to reach the services of this work folder."""
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_HOME", *MLFLOW_CLIENT_VARIABLES):
        if name in os.environ:
            print(f"export {name}={shlex.quote(os.environ[name])}")
    return 0


@contextmanager
def _only_one() -> Iterator[None]:
    """Hold the work folder: two sets of services would fight for its databases."""
    lock = FileLock(settings.home() / "services.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        running = running_services()
        where = f" at {running['PREFECT_API_URL']} and {running['MLFLOW_TRACKING_URI']}" if running else ""
        raise EyrieError(
            f"the services of {settings.home()} are running already{where}: "
            "use those, stop them with Ctrl-C where they were started, or set EYRIE_HOME to another folder"
        ) from None
    try:
        if left := leftovers():
            print("ending what is left of services that were killed ...", flush=True)
            end_processes(left)
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class _Databases:
    prefect: str
    mlflow: str


@contextmanager
def _databases(options: ServeOptions) -> Iterator[_Databases]:
    """Addresses of two databases: both programs keep their version in a table of the same name."""
    home = settings.home()
    if options.profile == "sqlite":
        fill(home / "prefect" / "prefect.db", PREFECT)
        mlflow = f"sqlite:///{home / 'mlflow.db'}"
        ensure_tracking_database(mlflow)  # Prefect's and PostgreSQL's need no such care: a killed start is gone on with
        yield _Databases(f"sqlite+aiosqlite:///{home / 'prefect' / 'prefect.db'}", mlflow)
        return
    with postgres_server(home / "postgres") as server:
        for name in ("eyrie_prefect", "eyrie_mlflow"):
            server.ensure_database(name)
        yield _Databases(server.url("eyrie_prefect", "asyncpg"), server.url("eyrie_mlflow", "psycopg2"))


@dataclass(frozen=True)
class _Plan:
    """Ports, addresses and environments, all decided before anything starts."""

    options: ServeOptions
    databases: _Databases
    prefect_port: int
    mlflow_port: int

    @classmethod
    def of(cls, options: ServeOptions, databases: _Databases) -> _Plan:
        prefect = choose_port(options.host, options.prefect_port, 4200)
        return cls(options, databases, prefect, choose_port(options.host, options.mlflow_port, 5000))

    @property
    def prefect(self) -> str:
        """Address of the Prefect server from this machine."""
        return f"http://{self._names(self.prefect_port)[0]}"

    @property
    def mlflow(self) -> str:
        """Address of the MLflow server from this machine."""
        return f"http://{self._names(self.mlflow_port)[0]}"

    def _names(self, port: int) -> list[str]:
        return trusted_names(self.options.host, port)

    def client_environment(self) -> dict[str, str]:
        """What a program needs to find the services, and to be let in."""
        known = {"PREFECT_API_URL": f"{self.prefect}/api", "MLFLOW_TRACKING_URI": self.mlflow}
        if self.options.auth:
            user, _, password = self.options.auth.partition(":")
            login = {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
            known |= {"PREFECT_API_AUTH_STRING": self.options.auth} | login
        return known

    def worker_environment(self) -> dict[str, str]:
        """The worker and its runs use these servers, and keep artifacts in this work folder."""
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return {**os.environ, "PATH": programs, "EYRIE_HOME": str(settings.home()), **self.client_environment()}

    def prefect_environment(self) -> dict[str, str]:
        """A server that answers only its own pages, and only with the password where there is one."""
        closed = {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": self.databases.prefect,
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # 10 are too few on a busy machine: pages get "unavailable"
            "PREFECT_SERVER_UI_API_URL": "/api",  # of the server that sent the page, whatever name it was called by
            "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(_one_ui(settings.home() / "prefect" / "ui")),
            "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(trusted_origins(self._names(self.prefect_port))),
            "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        }
        if self.options.auth:
            closed["PREFECT_SERVER_API_AUTH_STRING"] = self.options.auth
        return {**_without(os.environ, "PREFECT_API_URL"), **closed}

    def mlflow_environment(self) -> dict[str, str]:
        """Databases and passwords go by environment: command lines can be read by everyone on the machine."""
        names = [pattern for name in self._names(self.mlflow_port) for pattern in _patterns(name)]
        known = {
            "MLFLOW_BACKEND_STORE_URI": self.databases.mlflow,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(names),
            "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(trusted_origins(names)),
        }
        if self.options.auth:
            known |= _mlflow_login(self.options.auth)
        return {**_without(os.environ, "MLFLOW_TRACKING_URI"), **known}


def _patterns(name: str) -> list[str]:
    """A trusted name as MLflow writes it: there, a name alone does not mean any port."""
    return [name] if re.search(r":\d+$", name) else [name, f"{name}:*"]


def _one_ui(folder: Path) -> Path:
    """A folder for the pages of Prefect's first UI only. The second asks an outside host, and the first links to it.

    No setting leaves the second out. A link to nowhere in the place of its pages does: the server cannot copy them
    there, says so in its log, and serves without them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "v2").is_symlink():
        (folder / "v2").symlink_to("left-out-on-purpose")
    return folder


def _mlflow_login(auth: str) -> dict[str, str]:
    """MLflow keeps users in a database; it is made anew at each start, so that the variable's password is the one."""
    home = settings.home()
    user, _, password = auth.partition(":")
    users = home / "mlflow-users.db"
    users.unlink(missing_ok=True)
    users.touch(mode=0o600)  # it holds the password's hash: private in a shared work folder too
    config = home / "mlflow-users.ini"
    lines = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": f"sqlite:///{users}",
        "admin_username": user,
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        "auth_cache_ttl_seconds": "60",  # without it every request pays for a slow hash
    }
    said = {name: value.replace("%", "%%") for name, value in lines.items()}  # in this format a % begins a name
    config.write_text("[mlflow]\n" + "".join(f"{name} = {value}\n" for name, value in said.items()))
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_urlsafe(32),
    }


def _start(plan: _Plan, supervisor: Supervisor) -> None:
    print(f"starting; logs are in {settings.home() / 'logs'}", flush=True)
    host = plan.options.host
    prefect = ("-m", "flows.operations.prefect_app", "--host", host, "--port", str(plan.prefect_port))
    mlflow = (
        *(
            "-m",
            "flows.operations.mlflow_app",
            "server",
            "--host",
            host,
            "--port",
            str(plan.mlflow_port),
            "--workers",
            "1",
        ),
        # Files go where commands put them that run without a server: both can read what the other wrote.
        *("--no-serve-artifacts", "--default-artifact-root", (settings.home() / "mlflow-files").as_uri()),
        *(("--app-name", "basic-auth") if plan.options.auth else ()),
    )
    worker = ("-P", "-m", "flows.operations.worker", "--pool", POOL, "--name", "eyrie")
    for name, words, environment in (
        ("prefect", prefect, plan.prefect_environment()),
        ("mlflow", mlflow, plan.mlflow_environment()),
    ):
        supervisor.start(name, [sys.executable, *words], environment)
        announce(supervisor.processes, {})
    with _told("the Prefect server"):
        supervisor.wait_until_healthy("prefect", f"{plan.prefect}/api/health")
    with _told("the MLflow server"):
        supervisor.wait_until_healthy("mlflow", f"{plan.mlflow}/health")  # lost runs are marked in both
    deploy = [sys.executable, "-m", "flows", "deploy", "--no-worker-runs"]
    with _told("work pool, automations and deployments"):
        supervisor.call("deploy", deploy, plan.worker_environment())
    print(supervisor.last_line("deploy"), "and a worker", flush=True)
    supervisor.start("worker", [sys.executable, *worker], plan.worker_environment(), children_go_on=True)
    announce(supervisor.processes, plan.client_environment())
    print(f"Prefect  {plan.prefect}/deployments")
    print(f"MLflow   {plan.mlflow}/#/experiments?workflowType=machine_learning")
    print("Ctrl-C stops everything.", flush=True)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what is coming up, and how long it took."""
    print(f"{what} ...", end=" ", flush=True)
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:.0f} s", flush=True)


def _without(environment: Any, name: str) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != name}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def choose_port(host: str, wanted: int | None, usual: int) -> int:
    """The port that was asked for, or the usual one if nobody has it, or any free one."""
    for port in (wanted,) if wanted else (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except (OSError, OverflowError) as error:  # the second: no such number
                reason = getattr(error, "strerror", None) or error
                continue
            return int(probe.getsockname()[1])
    raise ConfigError(f"cannot listen on {host}, port {wanted or 'any'}: {reason}; choose another host or port")
