"""The label embeddings of EAGLE as vectors (GRLR, Algorithm 1); the imputer itself needs only their inner products."""

from __future__ import annotations

import numba
import numpy as np

from xcore.imputation.base import Pairs
from xcore.numeric.matrices import Float32, Float64, Int32, Int64
from xcore.numeric.parallel import SparseRows

_ZERO = 1e-12


@numba.njit(cache=True, nogil=True)
def embed_labels(
    X: SparseRows,
    pairs: Pairs,
    mean: Float64,
    starts: Float64,
    labels: tuple[int, int],
    options: tuple[int, float],
    out: Float32,
) -> None:
    """Write the embeddings (L, d) of the labels ``labels[0] <= k < labels[1]`` after all steps.

    `mean` (d,) is subtracted from every row. `starts` breaks the tie where the sum of all candidates vanishes.
    `options` are the number and the length of the steps. Cost O(T (nnz of the candidates + d)) per label.
    """
    iterations, step = options
    for label in range(labels[0], labels[1]):
        first_pair, end_pair = pairs.of_label[label], pairs.of_label[label + 1]
        if first_pair == end_pair:
            continue
        size, count = pairs.size[first_pair:end_pair], pairs.carriers[first_pair:end_pair]
        candidates, weights = candidates_of(pairs, first_pair, end_pair)
        e = _direction(X, mean, candidates, weights)
        if not np.any(e):  # opposite rows cancel: any candidate is as good a start, and 0 would stay 0
            only = np.zeros(len(candidates))
            only[int(starts[label] * len(candidates))] = 1.0
            e = _direction(X, mean, candidates, only)
        scores, selected = np.empty(len(candidates)), np.empty(len(candidates))
        for _ in range(iterations):
            for place in range(len(candidates)):
                scores[place] = _dot(X, candidates[place], e)
            select_members(scores, size, count, selected)
            moved = e + step * _direction(X, mean, candidates, selected)
            length = np.sqrt(np.sum(moved**2))
            if length < 1e-9:  # the step leads back to the origin: there is no direction to take
                break
            e = moved / length
        out[label] = e


@numba.njit(cache=True, nogil=True)
def candidates_of(pairs: Pairs, first_pair: int, end_pair: int) -> tuple[Int32, Float64]:
    """Members of all groups of a label one after the other, and the multiplicity of their groups."""
    total = np.sum(pairs.size[first_pair:end_pair])
    rows, weights = np.empty(total, np.int32), np.empty(total)
    start = 0
    for pair in range(first_pair, end_pair):
        stop = start + pairs.size[pair]
        rows[start:stop] = pairs.members[pairs.first[pair] : pairs.first[pair] + pairs.size[pair]]
        weights[start:stop] = pairs.carriers[pair]
        start = stop
    return rows, weights


@numba.njit(cache=True, nogil=True)
def select_members(scores: Float64, size: Int64, count: Int64, selected: Float64) -> None:
    """Multiplicity of the group at every member that attains the group's maximum, else 0."""
    start = 0
    for group in range(len(size)):
        stop = start + size[group]
        best = np.max(scores[start:stop])
        for position in range(start, stop):
            selected[position] = count[group] if scores[position] == best else 0.0
        start = stop


@numba.njit(cache=True, nogil=True)
def _direction(X: SparseRows, mean: Float64, rows: Int32, weights: Float64) -> Float64:
    """The unit vector along the weighted sum of rows minus their mean; 0 where the sum vanishes."""
    total, weight = np.zeros(len(mean)), 0.0
    for place in range(len(rows)):
        if weights[place] != 0.0:
            weight += weights[place]
            for entry in range(X.indptr[rows[place]], X.indptr[rows[place] + 1]):
                total[X.indices[entry]] += weights[place] * X.data[entry]
    total -= weight * mean
    length = np.sqrt(np.sum(total**2))
    return total / length if length > _ZERO * max(weight, 1.0) else np.zeros(len(mean))


@numba.njit(cache=True, nogil=True)
def _dot(X: SparseRows, row: int, vector: Float64) -> float:
    total = 0.0
    for entry in range(X.indptr[row], X.indptr[row + 1]):
        total += X.data[entry] * vector[X.indices[entry]]
    return total
