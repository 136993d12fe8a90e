"""Seconds and peak memory of a step."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class Meter:
    """Measures a ``with`` block: wall seconds, and the highest resident memory of this process during it.

    On Linux the kernel keeps the exact high-water mark and is told to start anew; elsewhere the larger of the values
    before and after is all that is known. Memory of child processes does not count.
    """

    seconds: float = 0.0
    peak_memory_bytes: int = 0

    def __enter__(self) -> Self:
        self._start, self._before = time.perf_counter(), _resident()
        if _CLEAR.exists():
            _CLEAR.write_text("5")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        self.peak_memory_bytes = _high_water() if _STATUS.exists() else max(self._before, _resident())


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _high_water() -> int:
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024
