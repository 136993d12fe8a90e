"""The k best of many scored items, inside compiled kernels: a heap with the worst kept entry at its root.

Of equal scores the lower item is better, whatever the order in which they come. An offer costs O(1) where it is not
among the best so far, else O(log k).
"""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32

NO_ITEM = np.int32(2**31 - 1)  # worse than every item of the same score
WORST = np.float32(-np.inf)


@numba.njit(cache=True, nogil=True)
def clear(scores: Float32, items: Int32) -> None:
    """Empty heaps of any shape, the last axis being one heap."""
    scores[:], items[:] = WORST, NO_ITEM


@numba.njit(cache=True, nogil=True)
def offer(scores: Float32, items: Int32, score: float, item: int) -> None:
    """Keep an entry if it beats the worst of the heap."""
    if _worse(scores[0], items[0], score, item):
        _replace_worst(scores, items, len(scores), score, item)


@numba.njit(cache=True, nogil=True)
def best_first(scores: Float32, items: Int32) -> None:
    """Turn a heap into a ranking; places that no offer has filled get ``NO_LABEL``."""
    for size in range(len(scores) - 1, 0, -1):
        score, item = scores[size], items[size]
        scores[size], items[size] = scores[0], items[0]
        _replace_worst(scores, items, size, score, item)
    for place in range(len(items)):
        if items[place] == NO_ITEM:
            items[place] = NO_LABEL


@numba.njit(cache=True, nogil=True)
def offer_sums(scores: Float32, items: Int32, own: Int32, values: Float64) -> None:
    """Offer each item of `own` once, with the sum of its values; `NO_LABEL` is left out. Cost O(m log m).

    Values are added from left to right, so the bits do not depend on what else is offered.
    """
    order = np.argsort(own, kind="mergesort")  # stable
    at = 0
    while at < len(order):
        item, total = own[order[at]], 0.0
        while at < len(order) and own[order[at]] == item:
            total += values[order[at]]
            at += 1
        if item != NO_LABEL:
            offer(scores, items, np.float32(total), item)


@numba.njit(cache=True, nogil=True)
def _worse(score: float, item: int, than_score: float, than_item: int) -> bool:
    return score < than_score or (score == than_score and item > than_item)


@numba.njit(cache=True, nogil=True)
def _replace_worst(scores: Float32, items: Int32, size: int, score: float, item: int) -> None:
    """Replace the root of a heap of `size` entries."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _worse(scores[child + 1], items[child + 1], scores[child], items[child]):
            child += 1
        if not _worse(scores[child], items[child], score, item):
            break
        scores[at], items[at] = scores[child], items[child]
        at = child
    scores[at], items[at] = score, item
