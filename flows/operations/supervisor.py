"""Processes that live and end together: started, watched, and stopped with all that they started."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tasks.endpoints import ProcessMark, mark_of, session_members
from xcore.errors import EyrieError

SECONDS_TO_START = 600  # a server takes ten; one that ends is noticed at once, so patience costs nothing
SECONDS_TO_STOP = 10
SECONDS_TO_WIND_DOWN = 30  # a run hears of it only between two calls of compiled code
LINES_SHOWN = 15
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before an ended process is started again; doubled each time
SECONDS_OF_HEALTH = 300.0  # after which a process that ends is one that ends for the first time
LOGS_KEPT = 5


@dataclass
class _Kept:
    """A process that is to live as long as the supervisor, and what is needed to start it again."""

    process: subprocess.Popen[bytes]
    words: Sequence[str]
    environment: Mapping[str, str]
    started: float
    goes_on: bool
    sessions: list[ProcessMark] = field(default_factory=list)
    ends: int = 0
    due: float | None = None


class Supervisor:
    """Starts processes, each with a log file, and stops them in the opposite order.

    A terminal's Ctrl-C reaches only the supervisor, since every process has a session of its own: so that the stopping
    has an order, and a worker can still tell its server what became of its runs.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: dict[str, _Kept] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(
        self, name: str, words: Sequence[str], environment: Mapping[str, str], *, children_go_on: bool = False
    ) -> None:
        """Start a process that is to live as long as the supervisor.

        If it dies, what it started is ended, or goes on: a server's child would hold the port, but runs of a worker
        need no worker.
        """
        process = self._open(name, words, environment)
        kept = _Kept(process, words, environment, time.monotonic(), children_go_on)
        kept.sessions += filter(None, [mark_of(process.pid)])
        self._processes[name] = kept

    def wait_until_healthy(self, name: str, url: str) -> None:
        """Return when a server answers; fail when it ends, or says nothing for too long."""
        limit = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < limit:
            self.check()
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except OSError:
                time.sleep(0.3)
        raise EyrieError(f"{name} did not answer at {url} within {SECONDS_TO_START} s{self._last_words(name)}")

    def call(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a process to its end."""
        process = self._open(name, words, environment)
        try:
            code = process.wait()
        except BaseException:
            end_processes([process.pid])
            raise
        if code:
            raise EyrieError(f"{name} failed with exit code {code}{self._last_words(name)}")

    def last_line(self, name: str) -> str:
        """The last line that a process wrote."""
        return (self._log(name).read_text(errors="replace").splitlines() or [""])[-1]

    def check(self) -> None:
        """Fail if a process has ended by itself."""
        for name, kept in self._processes.items():
            if kept.process.poll() is not None:
                code = kept.process.returncode
                raise EyrieError(f"{name} stopped by itself with exit code {code}{self._last_words(name)}")

    def keep_running(self, tell: Callable[[str], None]) -> bool:
        """Start processes again that have ended by themselves, each after a pause; True if any was started.

        The others go on meanwhile: a worker that dies must not take the servers with it.
        """
        started = False
        for name, kept in self._processes.items():
            if kept.process.poll() is None:
                continue
            if kept.due is None:
                kept.ends = 1 if time.monotonic() - kept.started > SECONDS_OF_HEALTH else kept.ends + 1
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(kept.ends - 1, 10))
                kept.due = time.monotonic() + pause
                tell(
                    f"{name} stopped by itself with exit code {kept.process.returncode}; starting it again in "
                    f"{pause:g} s{self._last_words(name)}"
                )
            if time.monotonic() >= kept.due:
                if not kept.goes_on:
                    end_processes(session_members(kept.sessions))
                kept.process = self._open(name, kept.words, kept.environment)
                kept.sessions += filter(None, [mark_of(kept.process.pid)])
                kept.started, kept.due, started = time.monotonic(), None, True
        return started

    @property
    def processes(self) -> list[int]:
        """Ids of the processes."""
        return [kept.process.pid for kept in self._processes.values()]

    def wind_down(self, name: str) -> bool:
        """Let a worker take no new work, and end what it has under way; True if there was any."""
        kept = self._processes.get(name)
        if kept is None or kept.process.poll() is not None:
            return False
        process = kept.process
        process.send_signal(signal.SIGINT)
        children = [member for member in session_members(kept.sessions) if member != process.pid]
        end_processes(children, SECONDS_TO_WIND_DOWN)
        return bool(children)

    def stop(self) -> None:
        """Stop all, the last one first."""
        for kept in reversed(self._processes.values()):
            end_processes([kept.process.pid])
            kept.process.wait()
            end_processes(session_members(kept.sessions))
        self._processes.clear()

    def _open(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._rotate(self._log(name))
        with self._log(name).open("wb") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _rotate(self, log: Path) -> None:
        """Keep the logs of earlier starts as ``NAME.log.1`` (the last one) and so on: they tell why a process ended."""
        for number in range(LOGS_KEPT - 1, -1, -1):
            older = log.with_name(f"{log.name}.{number}") if number else log
            if older.exists():
                older.replace(log.with_name(f"{log.name}.{number + 1}"))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return "\n  ".join([f"; the end of {self._log(name)}:", *lines])


def end_processes(pids: Iterable[int], patience: float = SECONDS_TO_STOP) -> None:
    """Ask processes and their children to end, and kill those that have not after a while."""
    family = [psutil.Process(member) for pid in pids for member in (pid, *_children(pid)) if psutil.pid_exists(member)]
    for process in family:
        _signal(process, signal.SIGTERM)
    _, stubborn = psutil.wait_procs(family, timeout=patience)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=SECONDS_TO_STOP)


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
