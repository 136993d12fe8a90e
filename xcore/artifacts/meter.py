"""Seconds and peak memory of a step; the seconds in which kernels were compiled are counted apart."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class Meter:
    """Measures a ``with`` block: wall seconds, and the highest resident memory of this process during it.

    `seconds` is without the `compile_seconds`: kernels are compiled by the first run on a machine only.
    On Linux the kernel keeps the exact high-water mark and is told to start anew; elsewhere the larger of the values
    before and after is all that is known. Memory of child processes does not count.
    """

    seconds: float = 0.0
    compile_seconds: float = 0.0
    peak_memory_bytes: int = 0

    def __enter__(self) -> Self:
        from xcore.numeric.stopwatch import Stopwatch  # loads numba, which a plan does without

        self._watch, self._before = Stopwatch(), _resident()
        if _CLEAR.exists():
            _CLEAR.write_text("5")
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)
        self.seconds, self.compile_seconds = self._watch.seconds, self._watch.compile_seconds
        self.peak_memory_bytes = _high_water() if _STATUS.exists() else max(self._before, _resident())


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _high_water() -> int:
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024
