"""Faults on purpose: kills, damaged files, odd input, little room, races, other surroundings. Nothing may go wrong.

Each row counts what was tried. A row's goal is the number of faults that were neither survived nor refused: none.
``--quick`` tries a small part of everything but services, and is part of the tests.
``python -m benchmarks.faults PART`` runs one part alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.faults import corruption, fuzzing, guided, kills, servers, surroundings
from benchmarks.faults.outcome import Outcome
from benchmarks.harness import Goal, Row, row

PARTS = {
    "kills": kills,
    "servers": servers,
    "surroundings": surroundings,
    "corruption": corruption,
    "fuzzing": fuzzing,
    "guided": guided,
}
NONE = Goal(0, at_least=False, any_size=True)


def run(quick: bool, parts: Iterable[str] = PARTS) -> Iterator[Row]:
    """All faults, or those of some parts; what went wrong is printed to stderr."""
    with tempfile.TemporaryDirectory(prefix="eyrie-faults-") as folder:
        for name in parts:
            for outcome in PARTS[name].outcomes(Path(folder), quick):
                yield from _rows(outcome)


def _rows(outcome: Outcome) -> Iterator[Row]:
    for problem in outcome.problems[:5]:
        print(f"{outcome.case}: {problem}", file=sys.stderr)
    for metric, number in outcome.counts.items():
        yield row("faults", outcome.case, metric, number, "")
    yield row("faults", outcome.case, "went wrong", len(outcome.problems), "", goal=NONE)
