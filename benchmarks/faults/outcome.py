"""What came of many faults of one sort."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """Counts of what was tried and seen, and what went wrong, in sentences."""

    case: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def check(self, right: bool, problem: str) -> None:
        """Note the problem unless all is right."""
        if not right:
            self.problems.append(problem)
