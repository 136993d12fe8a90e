"""Scores of different models on one scale, and their sum.

A score becomes the share of true labels among offers with about that score, as counted on dev rows. Without dev rows
it becomes the place of the score between the best and the last candidate of its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from sklearn.isotonic import isotonic_regression

from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, TopK, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.topk import best_first, clear, offer_sums

BIN = 50  # offers of neighbouring scores that are counted together, before their shares are made to rise
BLOCK_ROWS = 512


@dataclass(frozen=True)
class Scale:
    """A rising, piecewise linear curve from a score to the share of true labels.

    Attributes
    ----------
    scores : float64 (m,)
        Ascending.
    shares : float64 (m,)
        Within [0, 1].
    """

    scores: Float64
    shares: Float64

    @classmethod
    def fit(cls, scores: Float64, hits: Float64) -> Scale:
        """The curve of offers with finite scores; `hits` is 1 for a true label. Cost O(n log n).

        Notes
        -----
        Isotonic regression over bins of `BIN` offers. A step of the regression becomes one knot, so that the curve
        rises between the knots and keeps the order of the scores.
        """
        if not len(scores):
            return cls(np.zeros(1), np.zeros(1))
        order = np.argsort(scores, kind="stable")
        starts = np.arange(0, max(len(scores) - BIN, 0) + 1, BIN)
        sizes = np.diff(np.append(starts, len(scores)))
        means = np.add.reduceat(scores[order], starts) / sizes
        shares = isotonic_regression(np.add.reduceat(hits[order], starts) / sizes, sample_weight=sizes)
        steps = np.flatnonzero(np.append(True, np.diff(shares) > 0))
        weights = np.add.reduceat(sizes, steps)
        middles = np.add.reduceat(means * sizes, steps) / weights
        knots = np.concatenate([[scores.min()], middles, [scores.max()]])
        heights = np.concatenate([[shares[0] / 2], shares[steps], [(1 + shares[-1]) / 2]])
        kept = np.append(np.diff(knots) > 0, True)  # of equal scores the last
        return cls(knots[kept], heights[kept])

    def apply(self, scores: Float32) -> Float64:
        """The shares of some scores."""
        return np.interp(scores.astype(np.float64), self.scores, self.shares)


def relative(scores: Float32, candidates: int) -> Float64:
    """Scores (n, k), best first, between 0 for the last candidate of the row and 1 for the best; -inf stays out."""
    found = scores.astype(np.float64)
    n_offered = np.isfinite(found[:, :candidates]).sum(axis=1)
    last = found[np.arange(len(found)), np.maximum(n_offered - 1, 0)][:, None]
    width = found[:, :1] - last
    is_offered = np.isfinite(found) & np.isfinite(last)
    shares = np.divide(found - last, width, out=np.ones_like(found), where=is_offered & (width > 0))
    return np.asarray(np.clip(shares, 0, 1), np.float64)


def common_scale(top: TopK, scale: Scale | None, candidates: int) -> Float64:
    """Scores of a ranking on the common scale; 0, the floor, where there is no label."""
    shares = relative(top.scores, candidates) if scale is None else scale.apply(top.scores)
    return np.where(top.labels != NO_LABEL, shares, 0.0)


def best_of_sum(labels: Int32, scores: Float64, k: int) -> TopK:
    """The k labels of the largest sums. Cost O(n m log m).

    Parameters
    ----------
    labels : int32 (n, m)
        Offers of all members side by side; `NO_LABEL` where there is none.
    scores : float64 (n, m)
        A label that occurs several times in a row has the sum of its scores, added from left to right.
    """
    top = TopK(np.empty((len(labels), k), np.int32), np.empty((len(labels), k), np.float32))

    def fill(part: slice) -> None:
        _best_of_sum(labels[part], scores[part], top.labels[part], top.scores[part])

    over_blocks(fill, row_blocks(len(labels), BLOCK_ROWS))
    return top


@numba.njit(cache=True, nogil=True)
def _best_of_sum(labels: Int32, scores: Float64, best: Int32, best_scores: Float32) -> None:
    clear(best_scores, best)
    for row in range(len(labels)):
        offer_sums(best_scores[row], best[row], labels[row], scores[row])
        best_first(best_scores[row], best[row])
