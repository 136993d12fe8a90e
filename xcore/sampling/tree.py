"""Greedy fit of the sampler tree: every node splits its labels in halves that a logistic model tells apart best.

For a node with labels Y and their data, and ``zeta = +1`` for the labels on the right, -1 on the left, the objective is

    L = sum of log sigmoid(zeta_y (w . x + b)) - penalty (|w|^2 + b^2)                     (Eq. 8, and the regulariser).

Newton steps raise it over (w, b); moving the half of the labels with the largest ``w . s_y + n_y b`` to the right
(Eq. 9; s_y is the sum and n_y the number of a label's rows) raises it over zeta. The two alternate until no label
moves, or moves raise the objective by less than `ROUND_GAIN`. Rows carry a constant 1 as their last feature, for b.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.kernels import even_blocks, over_blocks
from xcore.matrices import NO_LABEL, Float32, Float64, Int32, Int64
from xcore.sampling.walk import Nodes, aligned

CERTAIN = 1000.0  # sigmoid(-1000) is 0 in any precision
MAX_ROUNDS = 50
ROUND_GAIN = 1e-3  # of the objective's size
EARLY_STEPS = 2  # Newton steps between two moves of labels; the last round goes to the optimum
NEWTON_STEPS = 100
GRADIENT_NORM = 1e-7  # at the optimum
KEPT_WHILE = 0.25  # a factorised Hessian serves again while a step with it shrinks the gradient to this share
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
        sums = np.empty((len(labels), x.shape[1]))
        for i, label in enumerate(labels):
            sums[i, :-1], sums[i, -1] = rows.sums[label], rows.starts[label + 1] - rows.starts[label]
        strength = penalty * (len(labels) if per_label else 1)
        theta, split = fit_node(x, ends, sums, strength, alternate, history)[:2]
        labels[:] = labels[split]
        weights[node], biases[node] = theta[:-1], theta[-1]


@numba.njit(cache=True, nogil=True)
def _gathered(rows: _Rows, labels: Int32) -> tuple[Float64, Int64]:
    """The rows of some labels with a 1 at the end, one label after the other, and where each label's rows end."""
    ends = np.empty(len(labels), np.int64)
    n, k = 0, rows.x.shape[1]
    for i, label in enumerate(labels):
        n += rows.starts[label + 1] - rows.starts[label]
        ends[i] = n
    x = np.ones((n, k + 1))
    at = 0
    for label in labels:
        for row in range(rows.starts[label], rows.starts[label + 1]):
            for f in range(k):
                x[at, f] = rows.x[row, f]
            at += 1
    return x, ends


@numba.njit(cache=True, nogil=True)
def fit_node(
    x: Float64, ends: Int64, sums: Float64, penalty: float, alternate: bool, history: Float64
) -> tuple[Float64, Int64, int]:
    """Parameters and split of one node.

    Parameters
    ----------
    x : float64 (n, k + 1)
        Rows of the node's labels, one label after the other; the last feature is 1.
    ends : int64 (r,)
        Where each label's rows end.
    sums : float64 (r, k + 1)
        Sum of each label's rows.
    history : float64 (MAX_ROUNDS + 1,)
        Receives the objective after each Newton ascent.

    Returns
    -------
    theta : float64 (k + 1,)
        The weights and, last, the bias.
    split : int64 (r,)
        Labels in order; the first ``r // 2`` go left.
    n_ascents : int
        Entries of `history` in use.
    """
    n_left, theta = len(ends) // 2, np.zeros(x.shape[1])
    theta[:-1] = _leading_direction(sums[:, :-1])
    scores = _scores(sums, theta)
    theta[-1] = -np.sum(scores) / max(len(x), 1)
    split = np.argsort(scores, kind="mergesort")
    basis = _basis(x)
    if len(basis) < len(theta):
        # Few rows span few dimensions, and outside of them the penalty keeps theta at 0.
        x, theta = _in_basis(x, basis), _in_basis(theta.reshape(1, -1), basis)[0]
    right = _right_of(split, n_left, ends)
    n_ascents, rising = 0, alternate
    while rising:
        history[n_ascents] = _climb(x, right, penalty, theta, EARLY_STEPS)
        n_ascents += 1
        gain = history[n_ascents - 1] - history[n_ascents - 2] if n_ascents > 1 else np.inf
        rising = _moved(sums, _back(theta, basis), split, n_left)
        rising = rising and gain > ROUND_GAIN * abs(history[n_ascents - 1]) and n_ascents < MAX_ROUNDS
        right = _right_of(split, n_left, ends)
    history[n_ascents] = _climb(x, right, penalty, theta, NEWTON_STEPS)
    return _back(theta, basis), split, n_ascents + 1


@numba.njit(cache=True, nogil=True)
def _basis(x: Float64) -> Float64:
    """Orthonormal rows that span the rows of `x`, by Gram and Schmidt; none where x has more rows than columns."""
    n, k = x.shape
    if n >= k:
        return np.empty((k, 0))
    basis, rank = np.empty((n, k)), 0
    for i in range(n):
        basis[rank] = x[i]
        for _ in range(2):  # twice is enough for full precision
            for j in range(rank):
                share = _dot(basis[rank], basis[j])
                for f in range(k):
                    basis[rank, f] -= share * basis[j, f]
        length = np.sqrt(_dot(basis[rank], basis[rank]))
        if length > 1e-8:  # the constant feature makes every row at least 1 long
            basis[rank] /= length
            rank += 1
    return basis[:rank].copy()


@numba.njit(cache=True, nogil=True)
def _in_basis(x: Float64, basis: Float64) -> Float64:
    out = np.empty((len(x), len(basis)))
    for i in range(len(x)):
        for j in range(len(basis)):
            out[i, j] = _dot(x[i], basis[j])
    return out


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(a: Float64, b: Float64) -> float:
    total = 0.0
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


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
    # The stable sort starts from the present order, so labels that tie stay where they are.
    new = split[np.argsort(gains[split], kind="mergesort")]
    side = np.zeros(len(split), np.bool_)
    side[split[n_left:]] = True
    moved = False
    for label in new[:n_left]:
        moved = moved or side[label]
    if moved:
        split[:] = new
    return moved


@numba.njit(cache=True, nogil=True)
def _scores(sums: Float64, theta: Float64) -> Float64:
    scores = np.empty(len(sums))
    for y in range(len(sums)):
        scores[y] = _dot(sums[y], theta)
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
        length = np.sqrt(_dot(direction, direction))
        if length == 0.0:
            break
        direction /= length
        if _dot(direction, previous) > 1.0 - 1e-12:
            break
        previous[:] = direction
        for i in range(k):
            direction[i] = _dot(covariance[i], previous)
    length = np.sqrt(_dot(direction, direction))
    if length > 0.0:
        direction /= length
    return direction


@numba.njit(cache=True, nogil=True)
def _climb(x: Float64, right: npt.NDArray[np.bool_], penalty: float, theta: Float64, max_steps: int) -> float:
    """Newton ascent with backtracking from `theta`, in place; the objective where it ends."""
    n, k = x.shape
    gradient, factor, spread = np.empty(k), np.empty((k, k)), np.empty(n)
    new_gradient, new_spread, candidate = np.empty(k), np.empty(n), np.empty(k)
    value: float = objective(x, right, penalty, theta, gradient, spread)
    norm, is_kept = np.sqrt(np.sum(gradient**2)), False
    for _ in range(max_steps):
        if norm <= GRADIENT_NORM:
            break
        if not is_kept:
            _factorise(x, spread, penalty, factor)
        direction = _solved(factor, gradient)
        rate, found, new_value, new_norm = 1.0, False, value, norm
        while rate > 1e-9 and not found:
            candidate[:] = theta + rate * direction
            new_value = objective(x, right, penalty, candidate, new_gradient, new_spread)
            new_norm = np.sqrt(np.sum(new_gradient**2))
            # Near the top the objective is flat to its last bits: there a smaller gradient counts as higher.
            found = new_value > value or (new_value >= value - 1e-12 * abs(value) and new_norm < norm)
            rate *= 0.5
        if not found and not is_kept:
            break
        is_kept = found and new_norm < KEPT_WHILE * norm
        if found:
            theta[:], value, norm = candidate, max(value, new_value), new_norm
            gradient, new_gradient, spread, new_spread = new_gradient, gradient, new_spread, spread
    return value


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def objective(
    x: Float64, right: npt.NDArray[np.bool_], penalty: float, theta: Float64, gradient: Float64, spread: Float64
) -> float:
    """The node's objective; fills its gradient (k + 1,) and ``sigmoid'(theta . x)`` of each row. Cost O(n k)."""
    n, k = x.shape
    value, product = 0.0, 1.0
    for f in range(k):
        gradient[f] = -2.0 * penalty * theta[f]
        value -= penalty * theta[f] * theta[f]
    for i in range(n):
        z = 0.0
        for f in range(k):
            z += theta[f] * x[i, f]
        e = np.exp(-abs(z))
        share = 1.0 / (1.0 + e)
        product *= 1.0 + e
        wrong = (z >= 0) != right[i]
        if wrong:
            value -= abs(z)
        if i % 512 == 511:  # a product of 512 numbers up to 2 does not overflow
            value -= np.log(product)
            product = 1.0
        pull = (share if wrong else e * share) * (1.0 if right[i] else -1.0)
        spread[i] = e * share * share
        for f in range(k):
            gradient[f] += pull * x[i, f]
    return float(value - np.log(product))


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _factorise(x: Float64, spread: Float64, penalty: float, factor: Float64) -> None:
    """Lower Cholesky factor of minus the objective's Hessian. Cost O(n k^2 + k^3)."""
    n, k = x.shape
    factor[:] = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):  # four rows at a time: the matrix is read and written a quarter as often
        for f in range(k):
            a, b = spread[i] * x[i, f], spread[i + 1] * x[i + 1, f]
            c, d = spread[i + 2] * x[i + 2, f], spread[i + 3] * x[i + 3, f]
            for g in range(k):
                factor[f, g] += (a * x[i, g] + b * x[i + 1, g]) + (c * x[i + 2, g] + d * x[i + 3, g])
    for i in range(whole, n):
        for f in range(k):
            for g in range(k):
                factor[f, g] += spread[i] * x[i, f] * x[i, g]
    for j in range(k):
        factor[j, j] += 2.0 * penalty
        for i in range(j):
            factor[j, j] -= factor[j, i] * factor[j, i]
        factor[j, j] = np.sqrt(factor[j, j])
        for r in range(j + 1, k):
            for i in range(j):
                factor[r, j] -= factor[r, i] * factor[j, i]
            factor[r, j] /= factor[j, j]


@numba.njit(cache=True, nogil=True)
def _solved(factor: Float64, target: Float64) -> Float64:
    """The solution of ``factor factor' s = target``."""
    solution = target.copy()
    for j in range(len(target)):
        for i in range(j):
            solution[j] -= factor[j, i] * solution[i]
        solution[j] /= factor[j, j]
    for j in range(len(target) - 1, -1, -1):
        for i in range(j + 1, len(target)):
            solution[j] -= factor[i, j] * solution[i]
        solution[j] /= factor[j, j]
    return solution
