"""Who gets a label in the end: the chances that are reported, and the candidates that are kept."""

from __future__ import annotations

import numba
import numpy as np

from xcore.imputation.base import Pairs
from xcore.imputation.candidates import State
from xcore.imputation.posterior import given_count, given_mean
from xcore.imputation.sharpness import log_odds_of
from xcore.numeric.matrices import Float32, Int64
from xcore.numeric.parallel import even_blocks, over_blocks

_WORTH_KEEPING = 0.01  # a lower chance tells a solver nothing, and a soft imputation need not store it


def report_chances(pairs: Pairs, start: Int64, state: State, known: bool, sharpness: float) -> None:
    """The chances (in place) that the evidence gives with the exponent that is right on held-out groups."""

    def report(block: range) -> None:
        _sharpen(pairs, start, state, known, sharpness, block.start, block.stop)

    over_blocks(report, even_blocks(pairs.size, 64))


@numba.njit(cache=True, nogil=True)
def _sharpen(pairs: Pairs, start: Int64, state: State, known: bool, sharpness: float, first: int, end: int) -> None:
    for pair in range(first, end):
        chance = state.chance[start[pair] : start[pair + 1]]
        within = np.flatnonzero(chance > 0)
        log_odds, posterior = np.empty(len(within)), np.empty(len(within))
        for i in range(len(within)):
            log_odds[i] = sharpness * log_odds_of(state.evidence[start[pair] + within[i]])
        if known:
            given_count(log_odds, pairs.carriers[pair], posterior)
        else:
            given_mean(log_odds, min(max(np.sum(chance), 1.0), len(within)), posterior)
        for i in range(len(within)):
            chance[within[i]] = posterior[i]


def chosen_candidates(pairs: Pairs, start: Int64, chance: Float32, known: bool, soft: bool) -> tuple[Int64, Int64]:
    """The candidates that get their label, and the pair of each.

    Of each pair, those that its count allows, the likeliest first; with `soft`, all whose chance is worth keeping.
    """
    count = pairs.carriers
    if not known:
        expected = np.add.reduceat(np.append(chance.astype(np.float64), 0.0), start[:-1])
        count = np.clip(np.rint(expected).astype(np.int64), 1, pairs.size)
    slots = np.concatenate([[0], np.cumsum(count)])
    chosen = np.empty(slots[-1], np.int64)
    over_blocks(
        lambda block: _choose(start, slots, block.start, block.stop, chance, chosen), even_blocks(pairs.size, 64)
    )
    if soft:
        chosen = np.union1d(chosen, np.flatnonzero(chance >= _WORTH_KEEPING))
    return chosen, np.searchsorted(start, chosen, side="right") - 1


@numba.njit(cache=True, nogil=True)
def _choose(start: Int64, slots: Int64, first: int, end: int, chance: Float32, chosen: Int64) -> None:
    """Positions of the best candidates of each pair; the first of several that are tied."""
    for pair in range(first, end):
        own = chance[start[pair] : start[pair + 1]]
        if slots[pair + 1] - slots[pair] == 1:
            chosen[slots[pair]] = start[pair] + np.argmax(own)
            continue
        order = np.argsort(-own, kind="mergesort")
        for rank in range(slots[pair + 1] - slots[pair]):
            chosen[slots[pair] + rank] = start[pair] + order[rank]
