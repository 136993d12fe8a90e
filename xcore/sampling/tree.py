"""Greedy fit of the sampler tree: every node splits its labels in halves that a logistic model tells apart best.

For a node with labels Y and their data, and ``zeta = +1`` for the labels on the right, -1 on the left, the objective is

    L = sum of log sigmoid(zeta_y (w . x + b)) - penalty (|w|^2 + b^2)                     (Eq. 8, and the regulariser).

Newton steps raise it over (w, b); moving the half of the labels with the largest ``w . s_y + n_y b`` to the right
(Eq. 9; s_y is the sum and n_y the number of a label's rows) raises it over zeta. The two alternate until no label
moves, or moves raise the objective by less than `ROUND_GAIN`. Rows carry a constant 1 as their last feature, for b.

Where a node has many rows, the Newton steps between two moves see some `SAMPLE` of them; the moves and the last ascent
see all. A node's data stand feature by feature, (k + 1, n), so that all loops over rows are vector code.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.kernels import even_blocks, over_blocks
from xcore.matrices import NO_LABEL, Float32, Float64, Int32, Int64
from xcore.sampling.ascent import Ascent, climb, dot
from xcore.sampling.walk import Nodes, aligned

CERTAIN = 1000.0  # sigmoid(-1000) is 0 in any precision
MAX_ROUNDS = 50
ROUND_GAIN = 1e-3  # of the objective's size
SAMPLE = 16384  # rows that Newton steps between two moves of labels see; the last ascent sees all
EARLY_STEPS = 1  # Newton steps between two moves of labels; the last ascent goes to the optimum
NEWTON_STEPS = 100
POWER_STEPS = 100
TASKS = 64  # node ranges of a level that threads share


class _Rows(NamedTuple):
    """The data, sorted by label."""

    x: Float32  # (n, k)
    starts: Int64  # (n_labels + 1,): rows of label y are starts[y] : starts[y + 1]
    sums: Float64  # (n_labels, k)


def depth_of(n_labels: int) -> int:
    """Levels of the smallest balanced binary tree with `n_labels` leaves."""
    return (n_labels - 1).bit_length()


def fit_nodes(
    X: Float32, labels: Int32, n_labels: int, penalty: float, *, per_label: bool = False, alternate: bool = True
) -> Nodes:
    """Fit the tree top-down, level by level.

    Parameters
    ----------
    X : float32 (n, k)
        Features of the data points.
    labels : int32 (n,)
        Their labels; a label may have no point.
    penalty : float
        Weight of ``|w|^2 + b^2`` at each node.
    per_label : bool
        Multiply the penalty by the number of labels below the node.
    alternate : bool
        False splits along the leading eigenvector of the label sums and fits (w, b) once, as the released code does.

    Notes
    -----
    Labels of a level differ by at most one in number. Cost O(n k^2 depth rounds); threads share the nodes of a level.
    """
    depth, rows = depth_of(n_labels), _sorted_by_label(X, labels, n_labels)
    weights, biases = np.zeros((1 << depth, X.shape[1]), np.float32), np.zeros(1 << depth, np.float32)
    order, bounds = np.arange(n_labels, dtype=np.int32), np.array([0, n_labels], np.int64)
    counts = np.diff(rows.starts)
    for level in range(depth):
        first, cuts = 1 << level, np.empty(1 << level, np.int64)
        cost = np.add.reduceat(np.append(counts[order] + X.shape[1], 0), bounds[:-1])

        def fit(part: range, first: int = first, bounds: Int64 = bounds, cuts: Int64 = cuts) -> None:
            _fit_range(part.start, part.stop, rows, order, bounds, penalty, per_label, alternate, cuts,
                       weights[first:], biases[first:])  # fmt: skip

        over_blocks(fit, even_blocks(cost, TASKS))
        bounds = np.append(np.stack([bounds[:-1], bounds[:-1] + cuts], axis=1).ravel(), n_labels)
    leaves = np.full(1 << depth, NO_LABEL, np.int32)
    leaves[np.diff(bounds) > 0] = order
    places = np.empty(n_labels, np.int32)
    places[order] = np.flatnonzero(leaves != NO_LABEL)
    return Nodes(aligned(weights), biases, leaves, places, depth)


def _sorted_by_label(X: Float32, labels: Int32, n_labels: int) -> _Rows:
    by_label = np.argsort(labels, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(labels, minlength=n_labels))).astype(np.int64)
    x = np.ascontiguousarray(X[by_label], np.float32)
    sums = np.empty((n_labels, X.shape[1]))
    _sum_rows(x, starts, sums)
    return _Rows(x, starts, sums)


@numba.njit(cache=True, nogil=True)
def _sum_rows(x: Float32, starts: Int64, sums: Float64) -> None:
    sums[:] = 0.0
    for label in range(len(sums)):
        for i in range(starts[label], starts[label + 1]):
            for f in range(x.shape[1]):
                sums[label, f] += x[i, f]


@numba.njit(cache=True, nogil=True)
def _fit_range(
    first: int, last: int, rows: _Rows, order: Int32, bounds: Int64, penalty: float, per_label: bool, alternate: bool,
    cuts: Int64, weights: Float32, biases: Float32,
) -> None:  # fmt: skip
    """Fit nodes `first` to `last` of a level: reorder their labels, and set cuts, weights and biases."""
    history = np.empty(MAX_ROUNDS + 1)
    for node in range(first, last):
        labels = order[bounds[node] : bounds[node + 1]]
        cuts[node] = len(labels) // 2  # never more than half of the leaves, on either side
        if len(labels) == 1:
            biases[node] = CERTAIN
        if len(labels) < 2:
            continue
        x, ends = _gathered(rows, labels)
        sums = np.empty((len(labels), len(x)))
        for i, label in enumerate(labels):
            sums[i, :-1], sums[i, -1] = rows.sums[label], rows.starts[label + 1] - rows.starts[label]
        strength = penalty * (len(labels) if per_label else 1)
        theta, split = fit_node(x, ends, sums, strength, alternate, history)[:2]
        labels[:] = labels[split]
        weights[node], biases[node] = theta[:-1], theta[-1]


@numba.njit(cache=True, nogil=True)
def _gathered(rows: _Rows, labels: Int32) -> tuple[Float64, Int64]:
    """Features (k + 1, n) of the rows of some labels, one label after the other; and where each label's rows end."""
    ends = np.empty(len(labels), np.int64)
    n, k = 0, rows.x.shape[1]
    for i, label in enumerate(labels):
        n += rows.starts[label + 1] - rows.starts[label]
        ends[i] = n
    x = np.empty((k + 1, n))
    x[k] = 1.0
    at = 0
    for label in labels:
        for row in range(rows.starts[label], rows.starts[label + 1]):
            for f in range(k):
                x[f, at] = rows.x[row, f]
            at += 1
    return x, ends


@numba.njit(cache=True, nogil=True)
def fit_node(
    x: Float64, ends: Int64, sums: Float64, penalty: float, alternate: bool, history: Float64
) -> tuple[Float64, Int64, int]:
    """Parameters and split of one node.

    Parameters
    ----------
    x : float64 (k + 1, n)
        Rows of the node's labels, one label after the other, feature by feature; the last feature is 1.
    ends : int64 (r,)
        Where each label's rows end.
    sums : float64 (r, k + 1)
        Sum of each label's rows.
    history : float64 (MAX_ROUNDS + 1,)
        Receives the objective after each ascent; an estimate where the ascent saw a sample of the rows.

    Returns
    -------
    theta : float64 (k + 1,)
        The weights and, last, the bias.
    split : int64 (r,)
        Labels in order; the first ``r // 2`` go left.
    n_ascents : int
        Entries of `history` in use.
    """
    n_left, theta = len(ends) // 2, np.zeros(len(x))
    theta[:-1] = _leading_direction(sums[:, :-1])
    scores = _scores(sums, theta)
    theta[-1] = -np.sum(scores) / max(x.shape[1], 1)
    split = np.argsort(scores, kind="mergesort")
    basis = _basis(x)
    if len(basis) < len(theta):
        # Few rows span few dimensions, and outside of them the penalty keeps theta at 0.
        x, theta = _in_basis(x, basis), _in_basis(theta.reshape(-1, 1), basis)[:, 0].copy()
    n_ascents, ascent = 0, Ascent(np.empty(len(x)), np.empty((len(x), len(x))), np.zeros(1, np.bool_))
    if alternate and len(ends) > 2:  # of two labels there is but one split
        n_ascents = _alternate(x, ends, sums, penalty, basis, theta, split, ascent, history)
    history[n_ascents] = climb(x, _right_of(split, n_left, ends), penalty, theta, NEWTON_STEPS, ascent)
    return _back(theta, basis), split, n_ascents + 1


@numba.njit(cache=True, nogil=True)
def _alternate(
    x: Float64, ends: Int64, sums: Float64, penalty: float, basis: Float64, theta: Float64, split: Int64,
    ascent: Ascent, history: Float64,
) -> int:  # fmt: skip
    """Newton steps and moves of labels in turn, in place; the number of ascents, whose objectives fill `history`."""
    every, n_left = max(1, -(-x.shape[1] // SAMPLE)), len(ends) // 2
    seen, n_ascents, rising = np.ascontiguousarray(x[:, ::every]), 0, True
    while rising:
        right = _right_of(split, n_left, ends)[::every].copy()
        history[n_ascents] = every * climb(seen, right, penalty / every, theta, EARLY_STEPS, ascent)
        n_ascents += 1
        gain = history[n_ascents - 1] - history[n_ascents - 2] if n_ascents > 1 else np.inf
        rising = _moved(sums, _back(theta, basis), split, n_left)
        rising = rising and gain > ROUND_GAIN * abs(history[n_ascents - 1]) and n_ascents < MAX_ROUNDS
    ascent.is_kept[0] = ascent.is_kept[0] and every == 1
    return n_ascents


@numba.njit(cache=True, nogil=True)
def _basis(x: Float64) -> Float64:
    """Orthonormal rows that span the columns of `x`, by Gram and Schmidt; none where x has no fewer of them."""
    k, n = x.shape
    if n >= k:
        return np.empty((k, 0))
    basis, rank = np.empty((n, k)), 0
    for i in range(n):
        basis[rank] = x[:, i]
        for _ in range(2):  # twice is enough for full precision
            for j in range(rank):
                share = dot(basis[rank], basis[j])
                for f in range(k):
                    basis[rank, f] -= share * basis[j, f]
        length = np.sqrt(dot(basis[rank], basis[rank]))
        if length > 1e-8:  # the constant feature makes every column at least 1 long
            basis[rank] /= length
            rank += 1
    return basis[:rank].copy()


@numba.njit(cache=True, nogil=True)
def _in_basis(x: Float64, basis: Float64) -> Float64:
    out = np.zeros((len(basis), x.shape[1]))
    for j in range(len(basis)):
        for f in range(len(x)):
            for i in range(x.shape[1]):
                out[j, i] += basis[j, f] * x[f, i]
    return out


@numba.njit(cache=True, nogil=True)
def _back(theta: Float64, basis: Float64) -> Float64:
    """The vector of the whole space with coordinates `theta`; without a basis, itself."""
    if not basis.shape[1]:
        return theta
    out = np.zeros(basis.shape[1])
    for j in range(len(theta)):
        out += theta[j] * basis[j]
    return out


@numba.njit(cache=True, nogil=True)
def _moved(sums: Float64, theta: Float64, split: Int64, n_left: int) -> bool:
    """Put the labels with the largest gain (Eq. 9) last in `split`; whether any changes its side."""
    gains = _scores(sums, theta)
    middle = np.partition(gains, n_left)[n_left]
    n_ties = n_left  # labels in the middle that fit on the left; those that stand first stay there
    for gain in gains:
        n_ties -= gain < middle
    new, at_left, at_right, moved = np.empty_like(split), 0, n_left, False
    for place, label in enumerate(split):
        goes_left = gains[label] < middle
        if gains[label] == middle and n_ties:
            n_ties -= 1
            goes_left = True
        if goes_left:
            moved = moved or place >= n_left
            new[at_left] = label
            at_left += 1
        else:
            new[at_right] = label
            at_right += 1
    if moved:
        split[:] = new
    return moved


@numba.njit(cache=True, nogil=True)
def _scores(sums: Float64, theta: Float64) -> Float64:
    scores = np.empty(len(sums))
    for y in range(len(sums)):
        scores[y] = dot(sums[y], theta)
    return scores


@numba.njit(cache=True, nogil=True)
def _right_of(split: Int64, n_left: int, ends: Int64) -> npt.NDArray[np.bool_]:
    """For each row whether its label goes right."""
    right = np.zeros(ends[-1], np.bool_)
    for label in split[n_left:]:
        right[(ends[label - 1] if label else 0) : ends[label]] = True
    return right


@numba.njit(cache=True, nogil=True)
def _leading_direction(sums: Float64) -> Float64:
    """Leading eigenvector of the covariance of the rows of `sums`, by power iteration; zeros if they are all alike."""
    r, k = sums.shape
    mean, covariance = np.zeros(k), np.zeros((k, k))
    for y in range(r):
        for i in range(k):
            mean[i] += sums[y, i] / r
    for y in range(r):
        for i in range(k):
            centred = sums[y, i] - mean[i]
            for j in range(k):
                covariance[i, j] += centred * (sums[y, j] - mean[j])
    direction: Float64 = covariance[np.argmax(np.diag(covariance))].copy()
    previous = np.zeros(k)
    for _ in range(POWER_STEPS):
        length = np.sqrt(dot(direction, direction))
        if length == 0.0:
            break
        direction /= length
        if dot(direction, previous) > 1.0 - 1e-12:
            break
        previous[:] = direction
        for i in range(k):
            direction[i] = dot(covariance[i], previous)
    length = np.sqrt(dot(direction, direction))
    if length > 0.0:
        direction /= length
    return direction
