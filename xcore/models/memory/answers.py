"""From the nearest keys to labels: a softmax over the keys, times what each key says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from xcore.numeric.matrices import CSR, Float32, Float64, Int32, Int64, TopK, row_blocks
from xcore.numeric.parallel import SparseRows, over_blocks
from xcore.numeric.topk import best_first, clear, offer_sums
from xcore.search.keys import Near

BLOCK_ROWS = 256


class Settings(NamedTuple):
    """What can be chosen on dev rows.

    Attributes
    ----------
    temperature : float
        tau of the softmax over cosines.
    row_share : float
        lambda: the weight of training rows; label names have 1 - lambda.
    n_neighbours : int
        Keys that have a say.
    """

    temperature: float
    row_share: float
    n_neighbours: int


@dataclass(frozen=True)
class Values:
    """What each key says: the labels of a training row, or the label of a name.

    Attributes
    ----------
    rows : CSR float32 (n_rows, L)
        Labels of the first keys.
    labels : int32 (m,)
        Label of each further key.
    """

    rows: CSR
    labels: Int32

    def answer(self, near: Near, settings: Settings, k: int) -> TopK:
        """The k labels of the largest ``softmax(q K' / tau) [lambda Y; (1 - lambda) I]``. Cost: labels of the keys."""
        top = TopK(np.empty((len(near.ids), k), np.int32), np.empty((len(near.ids), k), np.float32))
        ids, cosines = near.ids[:, : settings.n_neighbours], near.cosines[:, : settings.n_neighbours]
        rows = SparseRows.of(self.rows)

        def fill(part: slice) -> None:
            own = (ids[part], cosines[part], settings.temperature, settings.row_share)
            _answer(*rows, self.labels, *own, top.labels[part], top.scores[part])

        over_blocks(fill, row_blocks(len(ids), BLOCK_ROWS))
        return top


@numba.njit(cache=True, nogil=True)
def key_weights(cosines: Float32, ids: Int32, temperature: float) -> Float64:
    """The softmax over the keys of one query; keys that are not there have 0."""
    weights = np.zeros(len(ids))
    for at in range(len(ids)):
        if ids[at] >= 0:
            weights[at] = np.exp((np.float64(cosines[at]) - np.float64(cosines[0])) / temperature)
    total = 0.0
    for at in range(len(ids)):
        total += weights[at]
    return weights / max(total, 1e-300)


@numba.njit(cache=True, nogil=True)
def _answer(
    values: Float32,
    indices: Int32,
    indptr: Int64,
    key_labels: Int32,
    ids: Int32,
    cosines: Float32,
    temperature: float,
    row_share: float,
    best: Int32,
    best_scores: Float32,
) -> None:
    n_rows = len(indptr) - 1
    clear(best_scores, best)
    for query in range(len(ids)):
        weights = key_weights(cosines[query], ids[query], temperature)
        size = 0
        for key in ids[query]:
            if 0 <= key < n_rows:
                size += indptr[key + 1] - indptr[key]
            elif key >= 0:
                size += 1
        labels, scores = np.empty(size, np.int32), np.empty(size)
        filled = 0
        for at in range(len(weights)):
            key = ids[query, at]
            if 0 <= key < n_rows:
                for entry in range(indptr[key], indptr[key + 1]):
                    labels[filled] = indices[entry]
                    scores[filled] = row_share * weights[at] * values[entry]
                    filled += 1
            elif key >= 0:
                labels[filled], scores[filled] = key_labels[key - n_rows], (1 - row_share) * weights[at]
                filled += 1
        offer_sums(best_scores[query], best[query], labels, scores)
        best_first(best_scores[query], best[query])
