"""What a fit gets beside its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numba
import numpy as np

from xcore.components import Report, silent

# Measure the learning curve after the last epoch, after each epoch, or also at 1/128, 1/64, ..., 1/2 of the first.
CurvePoints: TypeAlias = Literal["last", "epochs", "early"]


def _unread(sentence: str) -> None:
    """Nobody reads it."""


def _first_generator() -> np.random.Generator:
    return np.random.default_rng(0)


@dataclass(frozen=True)
class FitContext:
    """The surroundings of one fit; every field has a default, so ``FitContext()`` is enough in a notebook.

    Attributes
    ----------
    rng : Generator
        The only source of randomness. The same state gives the same bits.
    report : Report
        Receives progress.
    scratch : Path or None
        Folder for checkpoints. It outlives a killed process. None: nothing is kept.
    device : str
        Where torch models train: ``auto``, ``cpu`` or ``cuda``. Other models ignore it.
    threads : int or None
        Threads to use; None: as many as numba is set to use. No bit of a result depends on it.
    curve : 'last', 'epochs' or 'early'
        When the learning curve is measured.
    note : callable
        Receives sentences for the person who reads the result of the run.
    """

    rng: np.random.Generator = field(default_factory=_first_generator)
    report: Report = silent
    scratch: Path | None = None
    device: str = "auto"
    threads: int | None = None
    curve: CurvePoints = "epochs"
    note: Callable[[str], None] = _unread

    @contextmanager
    def limited_threads(self) -> Iterator[None]:
        """Limit the number of threads inside a ``with`` block."""
        before = numba.get_num_threads()
        numba.set_num_threads(min(self.threads or before, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)
