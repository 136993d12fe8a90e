"""Scores of all classes, with the bias of the noise removed (Eq. 5), in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np

from xcore.metrics.log_likelihood import log_probabilities
from xcore.models.negative_sampling.pairs import Pairs
from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, Int64, TopK, csr, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows
from xcore.sampling.sampler import FittedSampler, FittedTree
from xcore.training.dev_choice import DEPTH, row_ndcg

BLOCK_SCORES = 2**24
EVALUATED_ROWS = 64


@dataclass(frozen=True)
class Scorer:
    """A linear model of C classes and the noise that it was trained against.

    Attributes
    ----------
    weights : float32 (C, d)
        There may be more columns; they are not used.
    biases : float32 (C,)
    noise : FittedSampler or None
        None where scores need no correction.
    """

    weights: Float32
    biases: Float32
    noise: FittedSampler | None

    def raw(self, x: Float32) -> Float32:
        """``xi = x . w + b`` of all classes, float32 (n, C). Cost O(n C d)."""
        scores = product_of_rows(x, self.weights)
        scores += self.biases
        return scores

    def corrected(self, x: Float32, z: Float32) -> Float32:
        """``xi + log p_n`` of all classes for rows x (n, d); z (n, k) are their features for the noise."""
        scores = self.raw(x)
        if self.noise is not None:
            scores += self.noise.log_prob_all(z)
        return scores

    def exact_topk(self, x: Float32, z: Float32, k: int) -> TopK:
        """The k best classes of each row; ties go to the lower class. Memory is bounded by blocks."""
        top = _empty(len(x), k)
        for block in row_blocks(len(x), max(1, BLOCK_SCORES // len(self.biases))):
            _fill_best(self.corrected(x[block], z[block]), TopK(top.labels[block], top.scores[block]))
        return top

    def log_probability(self, x: Float32, z: Float32, classes: Int64) -> Float64:
        """Log softmax of the corrected scores, at one class of each row (n,)."""
        found = np.empty(len(x))
        for block in row_blocks(len(x), max(1, BLOCK_SCORES // len(self.biases))):
            found[block] = log_probabilities(self.corrected(x[block], z[block]), classes[block])
        return found

    def shortlist_topk(self, x: Float32, z: Float32, k: int, width: int) -> TopK:
        """The k best of the `width` classes that a beam search finds in the noise's tree."""
        if not isinstance(self.noise, FittedTree):
            raise TypeError("only a model with a tree has a shortlist")
        found, top = self.noise.shortlist(z, min(width, len(self.biases))), _empty(len(x), k)
        over_blocks(
            lambda part: _add_scores(x[part], self.weights, self.biases, found.labels[part], found.scores[part]),
            row_blocks(len(x), 16),
        )
        # In the order of classes, so that ties go as in the exact search.
        order = np.argsort(np.where(found.labels == NO_LABEL, np.iinfo(np.int32).max, found.labels), axis=1)
        labels = np.take_along_axis(found.labels, order, axis=1)
        scores: Float32 = np.take_along_axis(found.scores, order, axis=1)
        _fill_best(scores, top)
        named = np.take_along_axis(labels, np.maximum(top.labels, 0), axis=1)
        named[np.isneginf(top.scores)] = NO_LABEL
        return TopK(named.astype(np.int32), top.scores)


def best_classes(scores: Float32, k: int) -> TopK:
    """The k largest of each row of scores (n, C)."""
    top = _empty(len(scores), k)
    _fill_best(scores, top)
    return top


def _empty(n: int, k: int) -> TopK:
    return TopK(np.full((n, k), NO_LABEL, np.int32), np.full((n, k), -np.inf, np.float32))


def _fill_best(scores: Float32, top: TopK) -> None:
    over_blocks(lambda part: _keep_best(scores[part], top.labels[part], top.scores[part]), row_blocks(len(scores), 16))


@numba.njit(cache=True, nogil=True)
def _keep_best(scores: Float32, top_labels: Int32, top_scores: Float32) -> None:
    """Fill the k largest of each row of `scores` and their columns, by insertion into a short sorted list."""
    k = top_labels.shape[1]
    for row in range(len(scores)):
        n_found = 0
        for column in range(scores.shape[1]):
            score = scores[row, column]
            # Columns come in ascending order: a tie never displaces an earlier one.
            if (n_found == k and score <= top_scores[row, k - 1]) or score == -np.inf:
                continue
            n_found = min(n_found + 1, k)
            place = n_found - 1
            while place > 0 and top_scores[row, place - 1] < score:
                top_scores[row, place] = top_scores[row, place - 1]
                top_labels[row, place] = top_labels[row, place - 1]
                place -= 1
            top_scores[row, place], top_labels[row, place] = score, column


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _add_scores(x: Float32, weights: Float32, biases: Float32, labels: Int32, scores: Float32) -> None:
    """Add the raw scores of the found classes to their log-probabilities."""
    for row in range(len(x)):
        for j in range(labels.shape[1]):
            label = labels[row, j]
            if label != NO_LABEL:
                total = biases[label]
                for f in range(x.shape[1]):
                    total += weights[label, f] * x[row, f]
                scores[row, j] += total


def evaluate(scorer: Scorer, X: Float32, Z: Float32, pairs: Pairs) -> dict[str, float]:
    """Accuracy and log-likelihood per row of held-out pairs, and the accuracy without correction.

    A row counts as right if one of its classes scores strictly above all others, so ties and NaN count as wrong. Its
    log-likelihood is that of its classes, averaged by their weights, under the softmax of the corrected scores.
    """
    with np.errstate(invalid="ignore"):  # a training that diverges is to be seen in the curve
        return _evaluate(scorer, X, Z, pairs)


def _evaluate(scorer: Scorer, X: Float32, Z: Float32, pairs: Pairs) -> dict[str, float]:
    n_right = n_raw_right = n_rows = 0
    likelihood = 0.0
    for rows, classes, weights, of_row in _blocks(pairs):
        raw = scorer.raw(X[rows]).astype(np.float64)
        scores = raw if scorer.noise is None else raw + scorer.noise.log_prob_all(Z[rows])
        n_rows += len(rows)
        n_right += _n_right(scores, of_row, classes)
        n_raw_right += _n_right(raw, of_row, classes)
        largest = scores.max(axis=1, keepdims=True)
        norm = largest[:, 0] + np.log(np.exp(scores - largest).sum(axis=1))
        shares = weights / np.bincount(of_row, weights=weights)[of_row]
        likelihood += float(shares @ (scores[of_row, classes] - norm[of_row]))
    metrics = {"accuracy": n_right / n_rows, "log_likelihood": likelihood / n_rows}
    return metrics | ({"accuracy_uncorrected": n_raw_right / n_rows} if scorer.noise is not None else {})


def ranking_quality(scorer: Scorer, X: Float32, Z: Float32, pairs: Pairs) -> Float64:
    """nDCG@5 of each row that has pairs, (n_rows,): how high its classes stand by the corrected scores."""
    found = [np.zeros(0)]
    with np.errstate(invalid="ignore"):
        for rows, classes, _, of_row in _blocks(pairs):
            starts = np.searchsorted(of_row, np.arange(len(rows) + 1))
            own = csr(np.ones(len(classes)), classes, starts, len(scorer.biases))
            found.append(row_ndcg(scorer.exact_topk(X[rows], Z[rows], DEPTH), own))
    return np.concatenate(found)


def _blocks(pairs: Pairs) -> Iterator[tuple[Int32, Int32, Float32, np.ndarray]]:
    """Rows, and their classes, weights and place among the rows, a block of rows at a time."""
    rows, starts = np.unique(pairs.rows, return_index=True)
    ends = np.append(starts, len(pairs))
    for part in row_blocks(len(rows), EVALUATED_ROWS):
        own = slice(ends[part.start], ends[part.stop])
        yield rows[part], pairs.classes[own], pairs.weights[own], np.searchsorted(rows[part], pairs.rows[own])


def _n_right(scores: np.ndarray, of_row: np.ndarray, classes: Int32) -> int:
    own = np.full(len(scores), -np.inf)
    np.maximum.at(own, of_row, scores[of_row, classes])
    others = scores.copy()
    others[of_row, classes] = -np.inf
    return int((own > others.max(axis=1)).sum())
