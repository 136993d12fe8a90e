"""From a shortlist to a ranking: classifier and similarity of each candidate, mixed."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from xcore.numeric.matrices import NO_LABEL, Float32, Int32, TopK, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.simd import dot
from xcore.numeric.topk import best_first, clear, offer
from xcore.siamese.index import LabelIndex

BLOCK_ROWS = 64


@dataclass(frozen=True)
class Candidates:
    """The shortlists of some rows with what is known about each label.

    Attributes
    ----------
    labels : int32 (n, S)
        Each label once per row, ascending; -1 for none, at the end.
    classified, similar : float32 (n, S)
        Cosine of Enc(x) with w, and mean cosine of f(x) with the embedding of the label and with its centroid.
    """

    labels: Int32
    classified: Float32
    similar: Float32

    def ranked(self, alpha: float, k: int) -> TopK:
        """The k best labels by ``alpha classified + (1 - alpha) similar``; ties go to the lower label id."""
        top = TopK(np.empty((len(self.labels), k), np.int32), np.empty((len(self.labels), k), np.float32))

        def fill(part: slice) -> None:
            own = self.labels[part], self.classified[part], self.similar[part]
            _rank(*own, np.float32(alpha), top.labels[part], top.scores[part])

        over_blocks(fill, row_blocks(len(self.labels), BLOCK_ROWS))
        return top


def union_of(found: list[Int32]) -> Int32:
    """Labels of several searches (n, .), each label once per row, ascending; -1 for none, at the end."""
    labels = np.sort(np.concatenate(found, axis=1), axis=1)
    is_repeated = np.zeros(labels.shape, np.bool_)
    is_repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    last = np.int32(np.iinfo(np.int32).max)
    labels = np.sort(np.where(is_repeated | (labels == NO_LABEL), last, labels), axis=1)
    return np.where(labels == last, NO_LABEL, labels).astype(np.int32)


def measured(
    labels: Int32, intermediate: Float32, final: Float32, weights: Float32, names: LabelIndex, centroids: LabelIndex
) -> Candidates:
    """Both scores of each candidate. Cost O(n S D)."""
    found = Candidates(labels, np.zeros(labels.shape, np.float32), np.zeros(labels.shape, np.float32))
    of_names = names.places, names.keys.vectors.reshape(-1)
    of_centroids = centroids.places, centroids.keys.vectors.reshape(-1)

    def fill(part: slice) -> None:
        own = labels[part], intermediate[part].reshape(-1), final[part].reshape(-1)
        _measure(*own, weights.reshape(-1), *of_names, *of_centroids, found.classified[part], found.similar[part])

    over_blocks(fill, row_blocks(len(labels), BLOCK_ROWS))
    return found


@numba.njit(cache=True, nogil=True)
def _measure(
    labels: Int32,
    intermediate: Float32,
    final: Float32,
    weights: Float32,
    name_places: Int32,
    names: Float32,
    centroid_places: Int32,
    centroids: Float32,
    classified: Float32,
    similar: Float32,
) -> None:
    d = len(final) // max(len(labels), 1)
    for row in range(len(labels)):
        for at in range(labels.shape[1]):
            label = labels[row, at]
            if label == NO_LABEL:
                break
            classified[row, at] = dot(final, row * d, weights, label * d, d)
            total, n = np.float32(0), 0
            if name_places[label] >= 0:
                total += dot(intermediate, row * d, names, name_places[label] * d, d)
                n += 1
            if centroid_places[label] >= 0:
                total += dot(intermediate, row * d, centroids, centroid_places[label] * d, d)
                n += 1
            similar[row, at] = total / np.float32(max(n, 1))


@numba.njit(cache=True, nogil=True)
def _rank(labels: Int32, classified: Float32, similar: Float32, alpha: float, best: Int32, scores: Float32) -> None:
    clear(scores, best)
    rest = np.float32(1) - alpha
    for row in range(len(labels)):
        for at in range(labels.shape[1]):
            if labels[row, at] != NO_LABEL:
                offer(scores[row], best[row], alpha * classified[row, at] + rest * similar[row, at], labels[row, at])
        best_first(scores[row], best[row])
