"""Faults on purpose: kills, damaged files, odd input, little room, races, other surroundings. Nothing may go wrong.

Each row counts what was tried. A row's goal is the number of faults that were neither survived nor refused: none.
``--quick`` tries a small part of everything, and is part of the tests.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import corruption, fuzzing, kills, surroundings
from benchmarks.faults.outcome import Outcome
from benchmarks.harness import Goal, Row, row

NONE = Goal(0, at_least=False)


def run(quick: bool) -> Iterator[Row]:
    """All faults; what went wrong is printed to stderr."""
    with tempfile.TemporaryDirectory(prefix="eyrie-faults-") as folder:
        for part in (kills, surroundings, corruption, fuzzing):
            for outcome in part.outcomes(Path(folder), quick):
                yield from _rows(outcome)


def _rows(outcome: Outcome) -> Iterator[Row]:
    for problem in outcome.problems[:5]:
        print(f"{outcome.case}: {problem}", file=sys.stderr)
    for metric, number in outcome.counts.items():
        yield row("faults", outcome.case, metric, number, "")
    yield row("faults", outcome.case, "went wrong", len(outcome.problems), "", goal=NONE)
