"""The Prefect API that lives as long as a command, where no server is named."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
import urllib.request

from tasks import settings
from tasks.empty_databases import PREFECT, fill
from xcore.errors import EyrieError

INSTEAD = "`eyrie serve` in another terminal runs a server that all commands of this work folder use"
# As Prefect starts its own: without pages, and without the services that only a lasting server needs.
EMBEDDED = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}


def start_embedded_api() -> None:
    """Start the API in a process of its own, unless ``PREFECT_API_URL`` names a server; return when it answers.

    Prefect would do so by itself at the first request. For that it loads its whole server into this process too,
    waits for it even after it has ended, and gives up at the first slow answer.
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value():
        return
    if not os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL"):
        fill(settings.prefect_database(), PREFECT)
    server = _Server()
    atexit.register(server.stop)
    try:
        _wait_until_healthy(server)
    except BaseException:
        server.stop()
        raise
    os.environ["PREFECT_API_URL"] = server.api
    refresh_global_settings_context()


class _Server:
    """The process of the API, and the guard that ends it when this process is gone."""

    def __init__(self) -> None:
        self._guard = _Guard()
        self.start()

    def start(self) -> None:
        """Start it at any free port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        words = ("-m", "uvicorn", "--factory", "prefect.server.api.server:create_app", "--lifespan", "on")
        places = ("--host", "127.0.0.1", "--port", str(self._port), "--log-level", "error")
        self.process = subprocess.Popen([sys.executable, *words, *places], env=os.environ | EMBEDDED)
        self._guard.watch(self.process.pid)

    @property
    def api(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}/api"

    def has_lost_its_port(self) -> bool:
        """Whether another program listens at its port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        """End it, and let the guard go."""
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._guard.end()


class _Guard:
    """A small process that ends the server when this process is gone, however it went: kill -9 lets it say nothing.

    It waits for the end of a pipe that only this process can write to, and the system closes that.
    """

    _PROGRAM = """
import os, signal, sys, time
server = 0
for line in sys.stdin:
    server = int(line)
for number in (signal.SIGTERM, signal.SIGKILL) if server else ():
    try:
        os.kill(server, number)
    except ProcessLookupError:
        break
    time.sleep(5)
"""

    def __init__(self) -> None:
        words = [sys.executable, "-I", "-S", "-c", self._PROGRAM]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, text=True)

    def watch(self, pid: int) -> None:
        """End this process later; 0 is none."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{pid}\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Let the guard go: the server was stopped."""
        try:
            self.watch(0)
        except (BrokenPipeError, ValueError):  # it is gone
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def _wait_until_healthy(server: _Server) -> None:
    from prefect.settings import PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS

    seconds = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        code = server.process.poll()
        if code is not None and server.has_lost_its_port():
            server.start()
        elif code is not None:
            raise EyrieError(
                f"the embedded Prefect API ended with exit code {code}; its own messages are above. "
                f"Its records are in {os.environ.get('PREFECT_HOME', '~/.prefect')}"
            )
        if _answers(f"{server.api}/health"):
            return
        time.sleep(0.1)
    raise EyrieError(
        f"the embedded Prefect API did not answer within {seconds} s: the machine may be busy. Run the same command "
        "again later, set PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS to more seconds, or use a server that runs "
        f"already: {INSTEAD}"
    )


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:  # nobody listens yet, or the answer takes long
        return False
    return True
