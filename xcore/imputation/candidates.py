"""The candidates of all (group, label) pairs, and what an imputer believes of each."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.imputation.base import SMALLER_GROUPS, Pairs
from xcore.memory import need_array
from xcore.numeric.matrices import Float32, Int64


class Candidates(NamedTuple):
    """The members of all pairs, written one after the other: those of pair p are ``start[p] : start[p + 1]``.

    Attributes
    ----------
    overlap : whether a row can be a candidate of a label through several groups.
    """

    pairs: Pairs
    start: Int64
    overlap: bool

    @classmethod
    def of(cls, pairs: Pairs) -> Candidates:
        need_array((int(pairs.size.sum()),), "the candidates of all labels", SMALLER_GROUPS, entry_bytes=32)
        in_groups = np.bincount(pairs.members)
        return cls(pairs, pairs.candidates(), bool((in_groups > 1).any()))

    def n_of(self, labels: Int64) -> int:
        """How many candidates some labels have."""
        of_label = self.pairs.of_label
        return int((self.start[of_label[labels + 1]] - self.start[of_label[labels]]).sum())


class State(NamedTuple):
    """What changes from turn to turn, for each candidate (all float32).

    Attributes
    ----------
    chance : that it carries the label; a candidate of chance 0 is out for good.
    targets : what the scores below, and the sketched changes since, have seen of the chances.
    scores : fitted scores of the last exact regression, by the joint features.
    evidence : log of the last score without the own group.
    """

    chance: Float32
    targets: Float32
    scores: Float32
    evidence: Float32

    @classmethod
    def of(cls, chance: Float32) -> State:
        return cls(chance, np.zeros_like(chance), np.zeros_like(chance), np.zeros_like(chance))


@numba.njit(cache=True, nogil=True)
def targets_of(candidates: Candidates, label: int, chance: Float32) -> Float32:
    """What each candidate counts for in the regression: its chance, but once where it is so through several groups.

    Such a row gets the best of its chances in all of them (in place), and counts where it comes first.
    """
    pairs, start = candidates.pairs, candidates.start
    first, end = start[pairs.of_label[label]], start[pairs.of_label[label + 1]]
    targets = chance[first:end].copy()
    if not candidates.overlap:
        return targets
    rows = np.empty(end - first, np.int32)
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        place = start[pair] - first
        rows[place : place + pairs.size[pair]] = pairs.members[pairs.first[pair] : pairs.first[pair] + pairs.size[pair]]
    order = np.argsort(rows, kind="mergesort")
    begin = 0
    while begin < len(order):
        stop, best = begin, np.float32(0.0)
        while stop < len(order) and rows[order[stop]] == rows[order[begin]]:
            best = max(best, targets[order[stop]])
            stop += 1
        for position in range(begin, stop):
            targets[order[position]] = best if position == begin else np.float32(0.0)
            chance[first + order[position]] = best
        begin = stop
    return targets
