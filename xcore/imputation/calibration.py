"""From scores to chances, without a single true label: a mixture whose weights are the groups' counts."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.imputation.base import Pairs
from xcore.imputation.posterior import given_count, given_some
from xcore.kernels import even_blocks, over_blocks
from xcore.matrices import Float32, Float64, Int64

_BINS = 32
_CLASSES = 6
_MOST_CANDIDATES = 1_000_000


class Calibration(NamedTuple):
    """Log odds that a candidate carries its label, as a table over bins of its score.

    In a pair of count c and size g, c scores come from the density f1 of carriers and g - c from the density f0 of the
    others. Both densities are histograms, one for each class of labels that occur about equally often, and are fitted
    by maximum likelihood (expectation maximisation) on the pairs, with scores that do not know their own target.

    Attributes
    ----------
    edges : float64 (classes, bins - 1)
    log_odds : float64 (classes, bins)
        ``log f1 / f0``, plus the log prior odds of the class where counts are unknown.
    """

    edges: Float64
    log_odds: Float64

    @classmethod
    def fit(
        cls, pairs: Pairs, start: Int64, scores: Float32, chance: Float32, known: bool, iterations: int = 8
    ) -> Calibration:
        """Fit the densities from first chances, on at most about a million candidates, evenly spread."""
        sample = _every(pairs, start)
        position = _positions(start, sample)
        classes = np.repeat(_classes(pairs)[sample], pairs.size[sample])
        edges = _edges(scores[position], classes)
        table = cls(edges, np.zeros((_CLASSES, _BINS)))
        codes = classes * _BINS + table._bins(scores[position], classes)
        part = np.concatenate([[0], np.cumsum(pairs.size[sample])])
        q = chance[position].astype(np.float64)
        log_odds = table.log_odds
        for _ in range(iterations):
            log_odds = _log_ratio(codes, q, known)
            _chances(part, pairs.count[sample], known, log_odds.ravel()[codes], q)
        return cls(edges, log_odds)

    def chances(self, pairs: Pairs, start: Int64, scores: Float32, known: bool) -> Float32:
        """Chance (candidates,) of every candidate, conditioned on its pair's count."""
        chance = np.empty(len(scores), np.float32)
        classes = _classes(pairs)

        def convert(block: range) -> None:
            of_block = slice(start[block.start], start[block.stop])
            own = np.repeat(classes[block.start : block.stop], pairs.size[block.start : block.stop])
            log_odds = self._interpolated(scores[of_block], own)
            q = np.empty(len(log_odds))
            part = start[block.start : block.stop + 1] - start[block.start]
            _chances(part, pairs.count[block.start : block.stop], known, log_odds, q)
            chance[of_block] = q

        over_blocks(convert, even_blocks(pairs.size, 64))
        return chance

    def _bins(self, scores: Float32, classes: Int64) -> Int64:
        bins = np.empty(len(scores), np.int64)
        for c in range(_CLASSES):
            own = classes == c
            bins[own] = np.searchsorted(self.edges[c], scores[own])
        return bins

    def _interpolated(self, scores: Float32, classes: Int64) -> Float64:
        """Log odds, linear between the middles of the bins so that no two different scores tie inside the range."""
        log_odds = np.empty(len(scores))
        for c in range(_CLASSES):
            own = classes == c
            edges = self.edges[c]
            middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
            log_odds[own] = np.interp(scores[own], middles, self.log_odds[c])
        # A trace of the score itself keeps its order beyond the outermost bins.
        return log_odds + 1e-3 * scores


def _every(pairs: Pairs, start: Int64) -> Int64:
    """Pairs at an even stride, of at most about `_MOST_CANDIDATES` candidates."""
    stride = max(1, -(-int(start[-1]) // _MOST_CANDIDATES))
    return np.arange(0, len(pairs.size), stride)


def _positions(start: Int64, sample: Int64) -> Int64:
    """Candidates of some pairs, one after the other."""
    size = start[sample + 1] - start[sample]
    offset = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    return np.repeat(start[sample], size) + offset


def _classes(pairs: Pairs) -> Int64:
    """Class of each pair by the number of pairs of its label: 1-3, 4-15, 16-63, ..."""
    n_pairs = np.diff(pairs.of_label)
    classes = np.minimum(np.log2(np.maximum(n_pairs, 1)).astype(np.int64) // 2, _CLASSES - 1)
    return np.repeat(classes, n_pairs)


def _edges(scores: Float32, classes: Int64) -> Float64:
    """Quantiles of the scores of each class, finer towards the top, where the carriers are."""
    levels = np.concatenate([np.linspace(0.05, 0.85, _BINS // 2), 1 - np.geomspace(0.1, 1e-4, _BINS // 2 - 1)])
    edges = np.zeros((_CLASSES, _BINS - 1))
    for c in range(_CLASSES):
        own = scores[classes == c]
        if len(own):
            edges[c] = np.quantile(own, levels)
    return edges


def _log_ratio(codes: Int64, q: Float64, known: bool) -> Float64:
    """``log f1 / f0`` of every class and bin, each bin with one pseudo-candidate."""
    carriers = np.bincount(codes, q, _CLASSES * _BINS).reshape(_CLASSES, _BINS) + 1.0
    others = np.bincount(codes, 1 - q, _CLASSES * _BINS).reshape(_CLASSES, _BINS) + 1.0
    ratio = np.log(carriers / others)
    if known:
        ratio -= np.log(carriers.sum(axis=1, keepdims=True) / others.sum(axis=1, keepdims=True))
    # More score is never less evidence.
    return np.maximum.accumulate(ratio, axis=1)


@numba.njit(cache=True, nogil=True)
def _chances(part, count, known, log_odds, q):
    """Posterior of each pair's candidates ``part[p] : part[p + 1]``, into `q`."""
    for pair in range(len(count)):
        first, end = part[pair], part[pair + 1]
        if known:
            given_count(log_odds[first:end], count[pair], q[first:end])
        else:
            given_some(log_odds[first:end], q[first:end])
