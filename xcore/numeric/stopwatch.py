"""Seconds of work, with the seconds in which kernels were compiled apart: those are spent once per machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Any, Self

from numba.core import event


class _Compiling(event.Listener):  # type: ignore[misc]
    """Adds up the time in which at least one thread compiles. Others wait for the compiler's lock, or could as well.

    numba sends no event for a kernel that it finds in its cache.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way = 0  # kernels that a kernel calls are compiled within its own compilation
        self._since = self._total = (0.0, 0.0)
        self.tell_first: Callable[[], None] | None = None

    def on_start(self, started: Any) -> None:
        tell, self.tell_first = self.tell_first, None
        if tell:
            tell()
        with self._lock:
            if not self._under_way:
                self._since = _now()
            self._under_way += 1

    def on_end(self, ended: Any) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self._total = _add(self._total, _between(self._since, _now()))

    def spent(self) -> tuple[float, float]:
        """Wall and CPU seconds until now."""
        with self._lock:
            return _add(self._total, _between(self._since, _now())) if self._under_way else self._total


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _between(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - start[0], end[1] - start[1]


def _add(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]


_COMPILING = _Compiling()
event.register("numba:compile", _COMPILING)


def tell_first_compilation(tell: Callable[[], None] | None) -> None:
    """Call `tell` once, when the next kernel is compiled: a step that compiles for long should not be silent."""
    _COMPILING.tell_first = tell


class Stopwatch:
    """Measures a ``with`` block.

    Attributes
    ----------
    seconds, cpu_seconds : float
        Wall seconds, and CPU seconds of all threads, without those in which kernels were compiled.
    compile_seconds : float
        Wall seconds in which kernels were compiled.
    """

    seconds = cpu_seconds = compile_seconds = 0.0

    def __enter__(self) -> Self:
        self._start, self._compiled = _now(), _COMPILING.spent()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds, cpu_seconds = _between(self._start, _now())
        self.compile_seconds, compile_cpu_seconds = _between(self._compiled, _COMPILING.spent())
        # Other threads may work while one compiles: no part is less than nothing.
        self.seconds = max(seconds - self.compile_seconds, 0.0)
        self.cpu_seconds = max(cpu_seconds - compile_cpu_seconds, 0.0)
