"""PostgreSQL for the services: a server that the environment names, or a cluster of our own in the work folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from tasks.settings import PASSAGE
from xcore.errors import ConfigError, EyrieError

SERVER_VARIABLE = "EYRIE_POSTGRES"
HOST, USER = "127.0.0.1", "eyrie"
SYSTEM_USER = "postgres"  # PostgreSQL refuses to run as root; distributions make this user for it


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server, and who we are there."""

    user: str
    password: str
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Server:
        """From ``postgresql://user:password@host:port``."""
        parts = urlsplit(url)
        if not parts.scheme.startswith("postgres") or not parts.hostname or not parts.username:
            raise ConfigError(
                f"{SERVER_VARIABLE} is not the address of a server; expected postgresql://USER:PASSWORD@HOST:PORT"
            )
        return cls(parts.username, parts.password or "", parts.hostname, parts.port or 5432)

    def url(self, database: str, driver: str) -> str:
        """For SQLAlchemy."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"postgresql+{driver}://{login}@{self.host}:{self.port}/{database}"

    def ensure_database(self, name: str) -> None:
        """Create a database where it is missing."""
        import psycopg2
        from psycopg2 import sql

        login = {"user": self.user, "password": self.password, "host": self.host, "port": self.port}
        try:
            connection = psycopg2.connect(dbname="postgres", connect_timeout=10, **login)
        except psycopg2.OperationalError as error:
            raise EyrieError(f"PostgreSQL at {self.host}:{self.port} cannot be used: {error}") from None
        connection.autocommit = True
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("select 1 from pg_database where datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("create database {}").format(sql.Identifier(name)))


@contextmanager
def postgres_server(folder: Path) -> Iterator[Server]:
    """The server that ``EYRIE_POSTGRES`` names, or else a cluster in `folder`, made if missing, stopped at the end."""
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield Server.parse(given)
        return
    with _Cluster(folder).running() as server:
        yield server


class _Cluster:
    """A PostgreSQL cluster that listens on loopback, with a password that only the owner of the folder can read."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "cluster"
        self._programs = find_programs()
        self._as_owner = ["runuser", "-u", SYSTEM_USER, "--"] if os.geteuid() == 0 else []

    @contextmanager
    def running(self) -> Iterator[Server]:
        password = self._make()
        self._call("pg_ctl", "-D", str(self._data), "-m", "fast", "stop", check=False)  # of a serve that was killed
        port = _free_port()
        options = f"-p {port} -c listen_addresses={HOST} -c unix_socket_directories=''"
        log = str(self._folder / "server.log")
        try:
            self._call("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", options, "start")
            yield Server(USER, password, HOST, port)
        finally:
            self._call("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop", check=False)

    def _make(self) -> str:
        """Create the cluster where it is missing; returns its password."""
        secret = self._folder / "password"
        if not (self._data / "PG_VERSION").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            secret.write_text(secrets.token_urlsafe(24))
            secret.chmod(0o600)
            if self._as_owner:
                for path in (self._folder, secret):
                    shutil.chown(path, SYSTEM_USER)
                self._let_in()
            self._call(
                "initdb", "-D", str(self._data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8"
            )
        elif self._as_owner:
            self._let_in()  # the work folder may have been closed since
        return secret.read_text().strip()

    def _let_in(self) -> None:
        """Let the system's PostgreSQL user pass through the work folder, where that takes no group's rights away."""
        work = self._folder.parent
        if not self._is_reachable() and not work.stat().st_mode & 0o070:
            shutil.chown(work, group=pwd.getpwnam(SYSTEM_USER).pw_gid)
            work.chmod(work.stat().st_mode | PASSAGE)
        if not self._is_reachable():
            raise ConfigError(
                f"PostgreSQL does not run as root, and its user {SYSTEM_USER} cannot reach {self._folder}: "
                f"run this as another user, set EYRIE_HOME to a folder that {SYSTEM_USER} can enter, "
                f"or name a server with {SERVER_VARIABLE}"
            )

    def _is_reachable(self) -> bool:
        words = [*self._as_owner, "test", "-w", str(self._folder)]
        return subprocess.run(words, check=False).returncode == 0

    def _call(self, program: str, *words: str, check: bool = True) -> None:
        # Output goes to a file: a server that is started keeps a pipe open for as long as it lives.
        log_path = self._folder.parent / "logs" / "postgres.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            command = [*self._as_owner, str(self._programs / program), *words]
            code = subprocess.run(
                command, check=False, stdout=log, stderr=log, cwd="/", start_new_session=True
            ).returncode
        if check and code:
            raise EyrieError(
                f"{program} failed with exit code {code}; see {log_path} and {self._folder / 'server.log'}"
            )


def find_programs() -> Path:
    """The folder of `initdb`: on the path, or the newest where Debian keeps them."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    found = sorted((path for path in folders if (path / "initdb").exists()), key=lambda path: float(path.parent.name))
    if not found:
        raise ConfigError(
            "PostgreSQL's server programs (initdb, pg_ctl) were not found: "
            f"install PostgreSQL, or name a server with {SERVER_VARIABLE}"
        )
    return found[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
