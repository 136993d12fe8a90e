"""Greedy fit of the sampler tree: every node splits its labels in halves that a logistic model tells apart best.

For a node with labels Y and their data, and ``zeta = +1`` for the labels on the right, -1 on the left, the objective is

    L = sum of log sigmoid(zeta_y (w . x + b)) - penalty (|w|^2 + b^2)                     (Eq. 8, and the regulariser).

Newton steps raise it over (w, b); moving the half of the labels with the largest ``w . s_y + n_y b`` to the right
(Eq. 9; s_y is the sum and n_y the number of a label's rows) raises it over zeta. The two alternate until no label
moves, or moves raise the objective by less than `ROUND_GAIN`. Rows carry a constant 1 as their last feature, for b.

Where a node has many rows, the two alternate over some labels first, with some `SAMPLE` of the rows, and then over all.
A node's data stand feature by feature, (k + 1, n), so that all loops over rows are vector code.
"""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, Int64
from xcore.numeric.parallel import even_blocks, over_blocks
from xcore.sampling.ascent import TILE, ascent_from, climb, dot, gram, mix
from xcore.sampling.walk import Nodes, aligned

CERTAIN = 1000.0  # sigmoid(-1000) is 0 in any precision
MAX_ROUNDS = 50
ROUND_GAIN = 1e-3  # of the objective's size
SAMPLE = 16384  # rows of the labels that a larger node begins with
EARLY_STEPS = 1  # Newton steps between two moves of labels
NEWTON_STEPS = 100
ENOUGH = 1e-4  # nats per row: an ascent ends with the first step that promises no more
POWER_STEPS = 100
ALIGNED = 1.0 - 1e-7  # cosine between two power iterations that ends them
# numba compiles a kernel once more for each literal that it is called with, and slowly for each slice that is assigned:
# so kernels here pass np.int64(1) for 1, and copy arrays by loops. It halves the seconds that a first run compiles.
TASKS = 64  # node ranges of a level that threads share


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
    depth, k, by_label = depth_of(n_labels), X.shape[1], np.argsort(labels, kind="stable")
    weights, biases = np.zeros((1 << depth, k), np.float32), np.zeros(1 << depth, np.float32)
    order, bounds = np.arange(n_labels, dtype=np.int32), np.array([0, n_labels], np.int64)
    # The rows stand in the order of the labels, and the labels in the order of the nodes, from level to level.
    rows, counts = np.ascontiguousarray(X[by_label], np.float32), np.bincount(labels, minlength=n_labels)
    scratch = np.empty(len(X) * (k + 1))
    for level in range(depth):
        ends, first, cuts = np.append(0, np.cumsum(counts)), 1 << level, np.empty(1 << level, np.int64)
        cost = np.diff(ends[bounds]) + k * np.diff(bounds)

        def fit(
            part: range, ends: Int64 = ends, first: int = first, bounds: Int64 = bounds, cuts: Int64 = cuts
        ) -> None:
            _fit_range(part.start, part.stop, bounds, ends, penalty, per_label, alternate, scratch, rows, counts, order,
                       cuts, weights[first:], biases[first:])  # fmt: skip

        over_blocks(fit, even_blocks(cost, TASKS))
        bounds = np.append(np.stack([bounds[:-1], bounds[:-1] + cuts], axis=1).ravel(), n_labels)
    leaves = np.full(1 << depth, NO_LABEL, np.int32)
    leaves[np.diff(bounds) > 0] = order
    places = np.empty(n_labels, np.int32)
    places[order] = np.flatnonzero(leaves != NO_LABEL)
    return Nodes(aligned(weights), biases, leaves, places, depth)


@numba.njit(cache=True, nogil=True)
def _fit_range(
    first: int, last: int, bounds: Int64, ends: Int64, penalty: float, per_label: bool, alternate: bool,
    scratch: Float64, rows: Float32, counts: Int64, order: Int32, cuts: Int64, weights: Float32, biases: Float32,
) -> None:  # fmt: skip
    """Fit nodes `first` to `last` of a level: reorder their labels and rows, and set cuts, weights and biases."""
    history, width = np.empty(MAX_ROUNDS + 1), rows.shape[1] + 1
    for node in range(first, last):
        begin, end = bounds[node], bounds[node + 1]
        cuts[node] = (end - begin) // 2  # never more than half of the leaves, on either side
        if end - begin == 1:
            biases[node] = CERTAIN
        if end - begin < 2:
            continue
        own = rows[ends[begin] : ends[end]]
        x = scratch[ends[begin] * width : ends[end] * width].reshape(width, len(own))
        for i in range(len(own)):
            for f in range(width - 1):
                x[f, i] = own[i, f]
            x[width - 1, i] = 1.0
        own_ends, strength = ends[begin + 1 : end + 1] - ends[begin], penalty * (end - begin if per_label else 1)
        theta, right, _ = fit_node(x, own_ends, strength, alternate, history)
        for f in range(width - 1):
            weights[node, f] = theta[f]
        biases[node] = theta[width - 1]
        _reorder(x, own_ends, right, own, counts[begin:end], order[begin:end])


@numba.njit(cache=True, nogil=True)
def _reorder(x: Float64, ends: Int64, right: Float64, rows: Float32, counts: Int64, labels: Int32) -> None:
    """Bring labels, their numbers of rows and their rows in the order of the sides."""
    place, row, before = 0, 0, labels.copy()
    for side in (0.0, 1.0):
        for i in range(len(labels)):
            if right[i] != side:
                continue
            start = ends[i - 1] if i else 0
            labels[place], counts[place] = before[i], ends[i] - start
            place += 1
            for source in range(start, ends[i]):
                for f in range(rows.shape[1]):
                    rows[row, f] = x[f, source]
                row += 1


@numba.njit(cache=True, nogil=True)
def fit_node(
    x: Float64, ends: Int64, penalty: float, alternate: bool, history: Float64
) -> tuple[Float64, Float64, int]:
    """Parameters and split of one node.

    Parameters
    ----------
    x : float64 (k + 1, n)
        Rows of the node's labels, one label after the other, feature by feature; the last feature is 1.
    ends : int64 (r,)
        Where each label's rows end.
    history : float64 (MAX_ROUNDS + 1,)
        Receives the objective after each ascent over all rows.

    Returns
    -------
    theta : float64 (k + 1,)
        The weights and, last, the bias.
    right : float64 (r,)
        1 for the labels that go right, 0 for the ``r // 2`` that go left.
    n_ascents : int
        Entries of `history` in use.
    """
    sums, theta, every = _label_sums(x, ends), np.zeros(len(x)), -(-x.shape[1] // SAMPLE)
    if alternate and every > 1 and len(ends) >= 2 * every:
        some, some_ends = _every_label(x, ends, every)
        some_sums, right = _label_sums(some, some_ends), np.zeros(len(ends))
        _rise(some, some_sums, penalty / every, alternate, theta, _first_split(some_sums), history)
        _move(sums, theta, right)
    else:
        right = _first_split(sums)
    if x.shape[1] >= len(x):
        return theta, right, _rise(x, sums, penalty, alternate, theta, right, history)
    # Few rows span few dimensions, and outside of them the penalty keeps theta at 0.
    basis, coordinates = _spanned(x)
    within = np.zeros(len(basis))
    n_ascents = _rise(coordinates, _label_sums(coordinates, ends), penalty, alternate, within, right, history)
    mix(within, basis, np.int64(0), len(theta), theta)
    return theta, right, n_ascents


@numba.njit(cache=True, nogil=True)
def _every_label(x: Float64, ends: Int64, every: int) -> tuple[Float64, Int64]:
    """Rows of each `every`-th label."""
    some_ends = np.empty(-(-len(ends) // every), np.int64)
    n = 0
    for i in range(len(some_ends)):
        label = i * every
        n += ends[label] - (ends[label - 1] if label else 0)
        some_ends[i] = n
    some = np.empty((len(x), n))
    for f in range(len(x)):
        at = 0
        for label in range(0, len(ends), every):
            for row in range(ends[label - 1] if label else 0, ends[label]):
                some[f, at] = x[f, row]
                at += 1
    return some, some_ends


@numba.njit(cache=True, nogil=True)
def _label_sums(x: Float64, ends: Int64) -> Float64:
    sums = np.empty((len(x), len(ends)))
    for f in range(len(x)):
        row = 0
        for label in range(len(ends)):
            total = 0.0
            while row < ends[label]:
                total += x[f, row]
                row += 1
            sums[f, label] = total
    return sums


@numba.njit(cache=True, nogil=True)
def _rise(
    x: Float64, sums: Float64, penalty: float, alternate: bool, theta: Float64, right: Float64, history: Float64
) -> int:
    """Newton steps and moves of labels in turn, in place; the number of ascents, whose objectives fill `history`."""
    n_ascents, ascent = 0, ascent_from(x, theta)
    rising = alternate and len(right) > 2  # of two labels there is but one split
    while rising:
        history[n_ascents] = climb(x, _target(sums, right), penalty, ascent, np.int64(EARLY_STEPS), 0.0)
        n_ascents += 1
        gain = history[n_ascents - 1] - history[n_ascents - 2] if n_ascents > 1 else np.inf
        rising = _move(sums, theta, right)
        rising = rising and gain > ROUND_GAIN * abs(history[n_ascents - 1]) and n_ascents < MAX_ROUNDS
    history[n_ascents] = climb(x, _target(sums, right), penalty, ascent, np.int64(NEWTON_STEPS), ENOUGH * x.shape[1])
    return n_ascents + 1


@numba.njit(cache=True, nogil=True)
def _target(sums: Float64, right: Float64) -> Float64:
    """The sum of the rows on the right."""
    target = np.empty(len(sums))
    for f in range(len(sums)):
        target[f] = dot(sums[f], right)
    return target


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _spanned(x: Float64) -> tuple[Float64, Float64]:
    """Orthonormal rows that span the columns of `x`, by Gram and Schmidt; and the columns' coordinates."""
    k, n = x.shape
    basis, coordinates, rank = np.empty((n, k)), np.zeros((n, n)), 0
    for i in range(n):
        square = 0.0
        for f in range(k):
            basis[rank, f] = x[f, i]
        for j in range(rank):
            share = 0.0
            for f in range(k):
                share += basis[rank, f] * basis[j, f]
            for f in range(k):
                basis[rank, f] -= share * basis[j, f]
            coordinates[j, i] = share
        for f in range(k):
            square += basis[rank, f] * basis[rank, f]
        if square > 1e-12:  # the constant feature makes every column at least 1 long
            coordinates[rank, i] = np.sqrt(square)
            for f in range(k):
                basis[rank, f] /= coordinates[rank, i]
            rank += 1
    return basis[:rank], coordinates[:rank]


@numba.njit(cache=True, nogil=True)
def _move(sums: Float64, theta: Float64, right: Float64) -> bool:
    """Put the labels with the largest gain (Eq. 9) on the right; whether any changes its side."""
    gains = np.empty(len(right))
    mix(theta, sums, np.int64(0), len(gains), gains)
    return bool(_assign(gains, right))


@numba.njit(cache=True, nogil=True)
def _assign(gains: Float64, right: Float64) -> bool:
    """Put the half with the largest gains on the right; whether any changes its side."""
    n_left = len(right) // 2
    middle = _ranked(gains.copy(), n_left)
    room, moved = n_left, False  # on the left, for labels in the middle: those that are there stay first
    for gain in gains:
        room -= gain < middle
    for stays in (True, False):
        for label in range(len(gains)):
            if gains[label] == middle and (right[label] == 0.0) == stays:
                gains[label] = -np.inf if room > 0 else np.inf
                room -= 1
    for label in range(len(gains)):
        side = 1.0 if gains[label] > middle else 0.0
        moved = moved or side != right[label]
        right[label] = side
    return moved


@numba.njit(cache=True, nogil=True)
def _ranked(values: Float64, place: int) -> float:
    """What would stand at `place` if the values were sorted, by quickselect; reorders them."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        low, high = (low, j) if place <= j else (i, high) if place >= i else (place, place)
    return float(values[place])


@numba.njit(cache=True, nogil=True)
def _first_split(sums: Float64) -> Float64:
    """Half of the labels on either side along the leading eigenvector of the covariance of their sums."""
    right = np.zeros(sums.shape[1])
    if len(right) == 2:  # the two splits are the same
        right[1] = 1.0
        return right
    centred = sums[:-1].copy()
    for f in range(len(centred)):
        mean = np.mean(centred[f])
        for label in range(len(right)):
            centred[f, label] -= mean
    if len(right) < len(centred):
        _assign(_leading_vector(np.ascontiguousarray(centred.T)), right)  # a label's entry is its score
    else:
        _move(centred, _leading_vector(centred), right)
    return right


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _leading_vector(x: Float64) -> Float64:
    """Leading eigenvector of ``x @ x.T``, by power iteration; zeros if x is 0."""
    k, n = x.shape
    product, previous = np.empty((k, k)), np.zeros(k)
    gram(x, np.ones(n), np.int64(1), np.empty((2, TILE)), product)
    for i in range(k):
        for j in range(i):
            product[j, i] = product[i, j]
    vector: Float64 = product[np.argmax(np.diag(product))].copy()
    for _ in range(POWER_STEPS):
        length = np.sqrt(dot(vector, vector))
        if length == 0.0:
            break
        for i in range(k):
            vector[i] /= length
        if dot(vector, previous) > ALIGNED:
            break
        for i in range(k):
            previous[i] = vector[i]
        mix(previous, product, np.int64(0), k, vector)
    return vector
