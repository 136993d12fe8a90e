"""The Prefect API that lives as long as a command, where no server is named."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from xcore.errors import EyrieError

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

INSTEAD = "`eyrie serve` in another terminal runs a server that all commands of this work folder use"


def start_embedded_api() -> None:
    """Start the API in a process of its own, unless ``PREFECT_API_URL`` names a server; return when it answers.

    Prefect would do so by itself at the first request. It waits for its server even after that has ended, and gives
    up at the first slow answer.
    """
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    if server.running:
        return
    guard = _Guard()
    atexit.register(guard.end)
    atexit.register(server.stop)  # called before the guard's end
    try:
        _wait_until_healthy(server, guard)
    except BaseException:
        server.stop()
        guard.end()
        raise
    server.running = True  # from now on, Prefect's clients use it


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


def _wait_until_healthy(server: SubprocessASGIServer, guard: _Guard) -> None:
    from prefect.settings import PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS

    seconds = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
    limit = time.monotonic() + seconds
    process = _start(server, guard)
    while time.monotonic() < limit:
        code = process.poll()
        if code is not None and not server.is_port_available(server.port or 0):
            process = _start(server, guard)  # another program took the port at the last moment
        elif code is not None:
            raise EyrieError(
                f"the embedded Prefect API ended with exit code {code}; its own messages are above. "
                f"Its records are in {os.environ.get('PREFECT_HOME', '~/.prefect')}"
            )
        if _answers(f"{server.api_url}/health"):
            return
        time.sleep(0.1)
    raise EyrieError(
        f"the embedded Prefect API did not answer within {seconds} s: the machine may be busy. Run the same command "
        "again later, set PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS to more seconds, or use a server that runs "
        f"already: {INSTEAD}"
    )


def _start(server: SubprocessASGIServer, guard: _Guard) -> subprocess.Popen[Any]:
    server.port = server.find_available_port()
    server.server_process = server._run_uvicorn_command()
    guard.watch(server.server_process.pid)
    return server.server_process


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:  # nobody listens yet, or the answer takes long
        return False
    return True
