"""Multi-Head Encoding: the number of a class written as digits, one digit per head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xcore.errors import ConfigError
from xcore.numeric.matrices import Int64

MOST_CODES = 2**62  # numbers of classes are int64


@dataclass(frozen=True)
class LabelCodec:
    """Mixed-radix digits of class numbers. Head 1 has the most significant digit.

    The digits of class y are the H-way index of element y of a tensor of shape `lengths` in C order. Numbers from
    `n_classes` to the product of the lengths are padding: no class has them.

    Attributes
    ----------
    n_classes : int
    lengths : tuple of int
        Length of each head: how many values its digit has.
    """

    n_classes: int
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths must be at least one number of at least 1, got {list(self.lengths)}")
        if self.size >= MOST_CODES:
            raise ConfigError(
                f"lengths {list(self.lengths)} make {self.size:.2g} codes, expected at most {MOST_CODES:.2g}: "
                "make a head shorter"
            )
        if self.size < self.n_classes:
            raise ConfigError(
                f"lengths {list(self.lengths)} make {self.size:,} codes for {self.n_classes:,} classes: "
                "make a head longer, or add one"
            )

    @property
    def size(self) -> int:
        """Number of codes, with padding."""
        return math.prod(self.lengths)

    @cached_property
    def radices(self) -> Int64:
        """How many classes share a value of each digit and of all digits before it, int64 (H,)."""
        return np.array([math.prod(self.lengths[h + 1 :]) for h in range(len(self.lengths))], np.int64)

    @cached_property
    def starts(self) -> Int64:
        """Where each head begins where all of them lie side by side, int64 (H + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def digits(self, classes: Int64) -> Int64:
        """Digits of some class numbers (n,), int64 (n, H)."""
        return classes[:, None] // self.radices % np.array(self.lengths, np.int64)

    def compose(self, digits: Int64) -> Int64:
        """Class numbers of some digits (n, H): the inverse of `digits`."""
        found: Int64 = digits @ self.radices
        return found

    def prefixes(self, classes: Int64, n_digits: int) -> Int64:
        """The first digits of some classes as one number each, int64 (n,)."""
        found: Int64 = classes // self.radices[n_digits - 1]
        return found

    def n_prefixes(self, n_digits: int) -> int:
        """How many values the first digits have together, without those that hold padding only."""
        return -(-self.n_classes // int(self.radices[n_digits - 1]))


def confusion_degree(lengths: tuple[int, ...]) -> float:
    """How many classes the heads after the first must keep apart for each value of the head before.

    It compares orders of the same lengths: a long head first confuses less.
    """
    return math.prod(math.prod(lengths[h:]) / lengths[h - 1] for h in range(1, len(lengths)))
