"""Linear classifiers of one tree node by dual coordinate descent, sixteen children at a time.

The children of a node share their rows, so one visit to a row updates all of them: the weights of sixteen
children for one feature fill one cache line, and each dual step is computed for all sixteen in vector registers.
A child keeps its own stopping rule; a lane that has stopped takes no further steps.

With ``y = +-1``, costs ``C_i`` and rows ``x_i``, to which a constant feature is added (the bias), the kernels solve

    min over w of  1/2 |w|^2 + sum_i C_i loss(y_i w . x_i),   loss(m) = max(0, 1 - m)^2  or  log(1 + exp(-m)),

through the dual of Hsieh et al. (ICML 2008) and of Yu, Huang and Lin (Machine Learning 2011).

A row whose label is known only with a chance has both signs: ``C_i (q loss(w . x_i) + (1 - q) loss(-w . x_i))``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Int32
from xcore.numeric.parallel import SparseRows
from xcore.numeric.simd import (
    LANES,
    aligned_lines,
    any_greater,
    load,
    maximum,
    minimum,
    multiply_add,
    prefetch,
    splat,
    store,
    where_greater,
)

_INF = np.float32(np.inf)
_ZERO, _ONE, _TINY = np.float32(0), np.float32(1), np.float32(1e-30)


@numba.njit(cache=True, nogil=True)
def solve_squared_hinge(
    rows: SparseRows,
    target_of: Int32,
    targets: Float32,
    live: Float32,
    n_features: int,
    bias: float,
    tolerance: float,
    max_passes: int,
    seed: np.uint64,
) -> Float32:
    """Weights of up to `LANES` squared-hinge classifiers; flat float32, one line a feature, the bias in the last.

    Parameters
    ----------
    rows : CSR of the node's rows over the node's features
    target_of, targets
        As made by `block_targets`.
    live : float32 (LANES,)
        1 for the lanes in use, else 0.
    bias : float
        Value of the constant feature.
    tolerance : float
        A lane stops when its projected gradients of one pass lie within this range.
    seed : uint64
        Of the order of visits; a fixed order can be slower by the number of rows when the bias dominates.

    Notes
    -----
    A row leaves the pass when no open lane has a use for it (dual 0, gradient beyond the last pass's largest); before
    the end all rows are checked again. Cost O(passes * non-zeros) lines.
    """
    n = len(rows.indptr) - 1
    duals, squares = aligned_lines(n), _squared_lengths(rows, bias)
    weights: Float32 = aligned_lines(n_features + 1)
    active, n_active = np.arange(n).astype(np.int32), n
    open_lanes, limits = live.copy(), np.full(LANES, _INF)
    tops, bottoms = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    zero, one = splat(_ZERO), splat(_ONE)
    for _ in range(max_passes):
        seed = _shuffle(active, n_active, seed)
        is_open, limit = load(open_lanes, 0), load(limits, 0)
        top, bottom, n_kept = splat(-_INF), splat(_INF), 0
        for place in range(n_active):
            i = active[place]
            _fetch_row(rows, active, place + 1, n_active)
            target, dual = load(targets, target_of[i]), load(duals, i)
            sign = where_greater(target, zero, one, zero - one)
            diagonal = sign * target
            score = _score(rows, i, bias, weights)
            gradient = sign * score - one + diagonal * dual
            projected = where_greater(dual, zero, gradient, minimum(gradient, zero))
            top, bottom = maximum(top, projected), minimum(bottom, projected)
            new = maximum(dual - gradient / (splat(squares[i]) + diagonal), zero)
            step = (new - dual) * is_open
            useful = where_greater(new, zero, one, where_greater(gradient, limit, zero, one))
            if any_greater(useful * is_open, zero):  # a row stays for all lanes if one has a use for it
                active[place], active[n_kept] = active[n_kept], i
                n_kept += 1
            if any_greater(step * step, zero):  # most visits late in the solve change nothing: skip the writes
                store(duals, i, dual + step)
                _add_row(rows, i, bias, step * sign, weights)
        store(tops, 0, top)
        store(bottoms, 0, bottom)
        n_active = _next_pass(n, n_active, n_kept, live, open_lanes, limits, tops, bottoms, tolerance)
        if n_active < 0:
            break
    return weights


@numba.njit(cache=True, nogil=True)
def solve_soft_squared_hinge(
    rows: SparseRows,
    chances: Float32,
    masses: Float32,
    cost: float,
    live: Float32,
    n_features: int,
    bias: float,
    tolerance: float,
    max_passes: int,
    seed: np.uint64,
) -> Float32:
    """Weights of up to `LANES` classifiers with the loss ``C (q max(0, 1 - s)^2 + (m - q) max(0, 1 + s)^2)``.

    Parameters
    ----------
    chances : float32, one line per row
        q of each lane, as made by `block_chances`.
    masses : float32 (n,)
        m: the chance that the row belongs to the node.
    The others are those of `solve_squared_hinge`.

    Notes
    -----
    The derivative of the loss has three linear pieces, which meet at the scores -1 and 1. So a row needs one dual
    variable ``a = -loss'(s)``, of either sign, and the step that solves ``a = -loss'(s + (a - old) |x|^2)`` is found
    piece by piece. With q of 0 or m this is the step of `solve_squared_hinge`, and so are gradient and stopping rule.
    """
    n = len(rows.indptr) - 1
    duals, squares = aligned_lines(n), _squared_lengths(rows, bias)
    weights: Float32 = aligned_lines(n_features + 1)
    active, n_active = np.arange(n).astype(np.int32), n
    open_lanes, limits = live.copy(), np.full(LANES, _INF)
    tops, bottoms = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    zero, one, tiny, scale = splat(_ZERO), splat(_ONE), splat(_TINY), splat(np.float32(2 * cost))
    for _ in range(max_passes):
        seed = _shuffle(active, n_active, seed)
        is_open, limit = load(open_lanes, 0), load(limits, 0)
        top, bottom, n_kept = splat(-_INF), splat(_INF), 0
        for place in range(n_active):
            i = active[place]
            _fetch_row(rows, active, place + 1, n_active)
            chance, dual, square = load(chances, i), load(duals, i), splat(squares[i])
            up = scale * chance
            down = maximum(scale * (splat(masses[i]) - chance), zero)
            score = _score(rows, i, bias, weights)
            # the score at which the loss has the dual as its slope
            middle = (up - down - dual) / (up + down)
            high, low = zero - dual / maximum(down, tiny) - one, one - dual / maximum(up, tiny)
            answer = where_greater(middle, one, high, where_greater(zero - one, middle, low, middle))
            # By the sign of the likelier label, so that with q of 0 or m the stopping rule and the rows that leave a
            # pass are those of the plain solver, to the last bit.
            sign = where_greater(up, down, one, zero - one)
            gradient = sign * (score - answer)
            # With one label only, the dual has a bound at 0: there a gradient that points across it is no error.
            hard = where_greater(sign * dual, zero, gradient, minimum(gradient, zero))
            projected = where_greater(up * down, zero, gradient, hard)
            top, bottom = maximum(top, projected), minimum(bottom, projected)
            # The new dual on each of the three pieces of the loss; the piece is the one where `middle` lies. All three
            # are computed for all lanes: a branch per lane would cost more than the divisions.
            start = score - dual * square
            middle = (start + square * (up - down)) / (one + square * (up + down))
            high = zero - down * (one + (start - square * down) / (one + square * down))
            low = up * (one - (start + square * up) / (one + square * up))
            between = up - down - (up + down) * middle
            new = where_greater(middle, one, high, where_greater(zero - one, middle, low, between))
            step = (new - dual) * is_open
            useful = where_greater(new * new, zero, one, where_greater(gradient, limit, zero, one))
            if any_greater(useful * is_open, zero):
                active[place], active[n_kept] = active[n_kept], i
                n_kept += 1
            if any_greater(step * step, zero):
                store(duals, i, dual + step)
                _add_row(rows, i, bias, step, weights)
        store(tops, 0, top)
        store(bottoms, 0, bottom)
        n_active = _next_pass(n, n_active, n_kept, live, open_lanes, limits, tops, bottoms, tolerance)
        if n_active < 0:
            break
    return weights


@numba.njit(cache=True, nogil=True)
def soft_logistic_targets(chances: Float32, masses: Float32, cost: float) -> tuple[Int32, Float32, Float32]:
    """The targets of `solve_logistic` for chances q and masses m of rows, and its first logits.

    ``q log(1 + e^-s) + (m - q) log(1 + e^s)`` is a positive of weight m plus ``(m - q) s``. The linear term only
    shifts the dual variable: it begins at ``m - q`` instead of 0.
    """
    n = len(masses)
    targets, logits = aligned_lines(n), np.full(n * LANES, -_INF)
    for i in range(n):
        for at in range(i * LANES, (i + 1) * LANES):
            share = chances[at] / masses[i]
            targets[at] = (0.5 if share > 0 else -0.5) / (cost * masses[i])
            if 0 < share < 1:
                logits[at] = np.log((1 - share) / share)
    return np.arange(n).astype(np.int32), targets, logits


@numba.njit(cache=True, nogil=True)
def solve_logistic(
    rows: SparseRows,
    target_of: Int32,
    targets: Float32,
    logits: Float32,
    live: Float32,
    n_features: int,
    bias: float,
    tolerance: float,
    max_passes: int,
    seed: np.uint64,
) -> Float32:
    """Weights of up to `LANES` logistic classifiers; as `solve_squared_hinge`.

    The dual variable ``a`` in (0, C) is kept as its logit ``t``, where one step solves
    ``|x|^2 (C sigmoid(t) - a) + y w . x + t = 0``. No dual is ever 0, so no row leaves; a lane stops when no
    gradient ``y w . x + t`` of a pass is larger than `tolerance`.

    `logits` are the first ones, one line per row, where the weights are 0; they are overwritten. Ordinary targets begin
    with ``a = 0``, the logit minus infinity.
    """
    n = len(rows.indptr) - 1
    weights: Float32 = aligned_lines(n_features + 1)
    squares = _squared_lengths(rows, bias)
    order, open_lanes = np.arange(n).astype(np.int32), live.copy()
    scores, steps = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for _ in range(max_passes):
        seed = _shuffle(order, n, seed)
        largest, smallest = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
        for place in range(n):
            i = order[place]
            _fetch_row(rows, order, place + 1, n)
            store(scores, 0, _score(rows, i, bias, weights))
            for lane in range(LANES):
                steps[lane] = 0
                if open_lanes[lane] > 0:
                    target, t = targets[target_of[i] * LANES + lane], logits[i * LANES + lane]
                    sign, cost = np.sign(target), 0.5 / abs(target)
                    slope = sign * scores[lane]
                    dual = cost / (1.0 + np.exp(-t))
                    new = _logit_step(t, slope, dual, cost, squares[i])
                    largest[lane] = max(largest[lane], abs(slope + t))
                    logits[i * LANES + lane] = new
                    steps[lane] = sign * (cost / (1.0 + np.exp(-np.float32(new))) - dual)
            _add_row(rows, i, bias, load(steps, 0), weights)
        if _close_lanes(open_lanes, largest, smallest, tolerance) == 0:
            break
    return weights


@numba.njit(cache=True, nogil=True)
def _logit_step(t: float, slope: float, dual: float, cost: float, square: float) -> float:
    """Root of the rising ``square (cost sigmoid(t) - dual) + slope + t``, by Newton steps kept inside its bracket."""
    low, high = -slope - square * (cost - dual), -slope + square * dual
    t = min(max(t, low), high)
    for _ in range(20):
        share = 1.0 / (1.0 + np.exp(-t))
        value = square * (cost * share - dual) + slope + t
        if abs(value) < 1e-6:
            break
        if value > 0:
            high = t
        else:
            low = t
        t -= value / (square * cost * share * (1.0 - share) + 1.0)
        if not low <= t <= high:
            t = 0.5 * (low + high)
    return t


@numba.njit(cache=True, nogil=True)
def _shuffle(items: Int32, n: int, state: np.uint64) -> np.uint64:
    """Shuffle the first `n` items in place with a 64-bit congruential generator, and return its new state."""
    for i in range(n - 1, 0, -1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = np.int64(((state >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        items[i], items[j] = items[j], items[i]
    return state


@numba.njit(cache=True, nogil=True)
def _squared_lengths(rows: SparseRows, bias: float) -> Float32:
    squares = np.full(len(rows.indptr) - 1, np.float32(bias * bias))
    for i in range(len(squares)):
        for value in rows.data[rows.indptr[i] : rows.indptr[i + 1]]:
            squares[i] += value * value
    return squares


@numba.njit(cache=True, nogil=True)
def _fetch_row(rows: SparseRows, active: Int32, place: int, n_active: int) -> None:
    """Ask for the next row while this one is worked on: in random order the machine cannot guess it."""
    if place < n_active:
        i = active[place]
        for e in range(rows.indptr[i], rows.indptr[i + 1], LANES):
            prefetch(rows.indices, e)
            prefetch(rows.data, e)


@numba.njit(cache=True, nogil=True)
def _score(rows: SparseRows, i: int, bias: float, weights: Float32) -> Any:
    total = load(weights, len(weights) // LANES - 1) * splat(np.float32(bias))
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        total = multiply_add(load(weights, rows.indices[e]), rows.data[e], total)
    return total


@numba.njit(cache=True, nogil=True)
def _add_row(rows: SparseRows, i: int, bias: float, factor: Any, weights: Float32) -> None:
    last = len(weights) // LANES - 1
    store(weights, last, multiply_add(factor, np.float32(bias), load(weights, last)))
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        store(weights, rows.indices[e], multiply_add(factor, rows.data[e], load(weights, rows.indices[e])))


@numba.njit(cache=True, nogil=True)
def _next_pass(
    n: int,
    n_active: int,
    n_kept: int,
    live: Float32,
    open_lanes: Float32,
    limits: Float32,
    tops: Float32,
    bottoms: Float32,
    tolerance: float,
) -> int:
    """Rows of the next pass: those kept while a lane is open, then all of them for a last check; -1: it is over.

    A row that left too early has a gradient outside the range at the check. Its lane is then open again, and so are
    all: one that has really converged closes after that pass.
    """
    if _close_lanes(open_lanes, tops, bottoms, tolerance) > 0:
        limits[:] = np.where(tops > 0, tops, _INF)
        return n_kept
    if n_active == n:
        return -1
    open_lanes[:], limits[:] = live, _INF
    return n


@numba.njit(cache=True, nogil=True)
def _close_lanes(open_lanes: Float32, tops: Float32, bottoms: Float32, tolerance: float) -> int:
    """Close the lanes with a range of gradients within `tolerance`; returns the number of open lanes."""
    n_open = 0
    for lane in range(LANES):
        if tops[lane] - bottoms[lane] <= tolerance:
            open_lanes[lane] = 0
        n_open += open_lanes[lane] > 0
    return n_open
