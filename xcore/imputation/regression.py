"""Exact regressions of some labels on the joint features: sums of the targets, solutions, scores of the candidates.

Where many labels share their candidates, as frequent labels do in large groups, 32 labels are worked on side by side
(`xcore.imputation.column_products`); else each candidate by itself.
"""

from __future__ import annotations

import numba
import numpy as np

from xcore.imputation.candidates import Candidates, State, targets_of
from xcore.imputation.column_products import PANEL, JointRows, add_weighted, project
from xcore.imputation.ridge import RidgeSystem
from xcore.numeric import cholesky
from xcore.numeric.matrices import Float32, Int64


def regress(system: RidgeSystem, candidates: Candidates, labels: Int64, state: State) -> None:
    """Fit the chances of some labels exactly, and score (in place) their candidates that are not out."""
    weights = np.zeros((len(labels), system.n_joint), np.float32)
    _take_targets(candidates, labels, state)
    tiles = [slice(first, first + PANEL) for first in range(0, len(labels), PANEL)]
    for tile in tiles:
        together = _is_crowded(system.X, candidates, labels[tile], state)
        (_sum_together if together else _sum_apart)(system.X, candidates, labels[tile], state, weights[tile])
    cholesky.solve(system.factor, weights)
    score(system, candidates, labels, weights, state)


def score(system: RidgeSystem, candidates: Candidates, labels: Int64, weights: Float32, state: State) -> None:
    """Score (in place) the candidates of some labels that are not out, by their weights (labels, h)."""
    for first in range(0, len(labels), PANEL):
        tile = slice(first, first + PANEL)
        together = _is_crowded(system.X, candidates, labels[tile], state)
        (_score_together if together else _score_apart)(system.X, candidates, labels[tile], weights[tile], state)


@numba.njit(cache=True, nogil=True)
def _take_targets(candidates: Candidates, labels: Int64, state: State) -> None:
    """What the candidates of some labels count for now."""
    pairs, start = candidates.pairs, candidates.start
    for label in labels:
        own = slice(start[pairs.of_label[label]], start[pairs.of_label[label + 1]])
        state.targets[own] = targets_of(candidates, label, state.chance)


@numba.njit(cache=True, nogil=True)
def _is_crowded(X: JointRows, candidates: Candidates, labels: Int64, state: State) -> bool:
    """Whether rows are candidates of more than one of the labels on average; then they are cheaper side by side."""
    pairs, start, alive = candidates.pairs, candidates.start, 0
    for label in labels:
        for place in range(start[pairs.of_label[label]], start[pairs.of_label[label + 1]]):
            alive += state.chance[place] > 0
    return alive > len(X.indptr) - 1


@numba.njit(cache=True, nogil=True)
def _sum_apart(X: JointRows, candidates: Candidates, labels: Int64, state: State, sums: Float32) -> None:
    """``sums[k] = sum_i q_ik x_i`` over the candidates of each label, x_i by its joint features, q_ik their targets."""
    pairs, start = candidates.pairs, candidates.start
    for k in range(len(labels)):
        own = sums[k]
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                row, q = pairs.members[pairs.first[pair] + i], state.targets[start[pair] + i]
                if q > 0:
                    for entry in range(X.indptr[row], X.indptr[row + 1]):
                        own[X.indices[entry]] += q * X.data[entry]


@numba.njit(cache=True, nogil=True)
def _sum_together(X: JointRows, candidates: Candidates, labels: Int64, state: State, sums: Float32) -> None:
    """The same for up to 32 labels at once: the targets of a row stand side by side."""
    pairs, start = candidates.pairs, candidates.start
    beside, seen = np.zeros((len(X.indptr) - 1, PANEL), np.float32), np.zeros(len(X.indptr) - 1, np.bool_)
    for k in range(len(labels)):
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                row, q = pairs.members[pairs.first[pair] + i], state.targets[start[pair] + i]
                if q > 0:
                    beside[row, k], seen[row] = q, True
    panel = np.zeros((sums.shape[1], PANEL), np.float32)
    add_weighted(X, seen, beside, panel)
    sums[:] = panel[:, : len(labels)].T


@numba.njit(cache=True, nogil=True, fastmath=True)  # sums in the order that the processor likes, always the same
def _score_apart(X: JointRows, candidates: Candidates, labels: Int64, weights: Float32, state: State) -> None:
    pairs, start = candidates.pairs, candidates.start
    for k in range(len(labels)):
        own = weights[k]
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                if state.chance[start[pair] + i] > 0:
                    row = pairs.members[pairs.first[pair] + i]
                    state.scores[start[pair] + i] = _dot(X, X.indptr[row], X.indptr[row + 1], own)


@numba.njit(cache=True, nogil=True, fastmath=True)
def _dot(X: JointRows, entry: int, end: int, weights: Float32) -> np.float32:
    """Inner product of some entries with weights; four sums side by side, for one would wait for itself."""
    a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    while entry + 3 < end:
        a += X.data[entry] * weights[X.indices[entry]]
        b += X.data[entry + 1] * weights[X.indices[entry + 1]]
        c += X.data[entry + 2] * weights[X.indices[entry + 2]]
        d += X.data[entry + 3] * weights[X.indices[entry + 3]]
        entry += 4
    while entry < end:
        a += X.data[entry] * weights[X.indices[entry]]
        entry += 1
    return a + b + c + d


@numba.njit(cache=True, nogil=True)
def _score_together(X: JointRows, candidates: Candidates, labels: Int64, weights: Float32, state: State) -> None:
    """Scores of all rows for up to 32 labels at once; the candidates take theirs."""
    pairs, start = candidates.pairs, candidates.start
    panels = np.zeros((1, weights.shape[1], PANEL), np.float32)
    panels[0, :, : len(labels)] = weights.T
    products = np.empty((len(X.indptr) - 1, PANEL), np.float32)
    project(X, panels, 0, products)
    for k in range(len(labels)):
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                if state.chance[start[pair] + i] > 0:
                    state.scores[start[pair] + i] = products[pairs.members[pairs.first[pair] + i], k]
