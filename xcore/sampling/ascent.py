"""Newton ascent of one node of the sampler tree: a logistic model of two sides, with a penalty on its parameters.

With ``z = theta . x``, the objective is ``theta . target - sum of log(1 + exp z) - penalty |theta|^2``, where `target`
is the sum of the rows on the right. Nothing else depends on the sides: when labels move, an evaluation stays valid.
All loops over rows are vector code: slices of one feature, no division that may raise, an exponential of plain
arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from xcore.numeric.matrices import Float64

TILE = 128  # rows whose features stay in the cache
FEW_ROWS = 9  # with fewer, plain loops are quicker than vectors
HESSIAN_TILES = 16  # sampled if there are more rows: then a step shrinks the gradient to a tenth or so

FAR = 40.0  # exp(-40) is nothing next to 1
SQUARINGS = 7  # exp(-a) is the 128th power of exp(-a / 128), which a short series gives
_SCALE = 0.5**SQUARINGS
_MIDDLE = _SCALE * FAR / 2
_C = tuple((-1) ** j * math.exp(-_MIDDLE) / math.factorial(j) for j in range(11))
C0, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10 = _C


class Ascent(NamedTuple):
    """Where an ascent stands, and what is known of the place."""

    theta: Float64  # (k + 1,)
    gradient: Float64  # (k + 1,)
    pull: Float64  # (k + 1,): the sum of sigmoid(theta . x) x over the rows
    spread: Float64  # (n,): sigmoid'(theta . x)
    total: Float64  # (1,): the sum of log(1 + exp(theta . x))
    factor: Float64  # (k + 1, k + 1), of the Hessian of the last step
    steps: Float64  # (2, k + 1): the last step's start and direction
    tiles: Float64  # (2, TILE): room for the rows of a tile


@numba.njit(cache=True, nogil=True)
def ascent_from(x: Float64, theta: Float64) -> Ascent:
    """An ascent of rows x (k + 1, n) that begins at `theta`, and changes it in place."""
    k, n = x.shape
    vectors, tiles = np.empty((4, k)), np.empty((2, TILE))
    ascent = Ascent(theta, vectors[0], vectors[1], np.empty(n), np.empty(1), np.empty((k, k)), vectors[2:], tiles)
    ascent.total[0] = evaluate(x, theta, ascent.pull, ascent.spread, tiles)
    return ascent


@numba.njit(cache=True, nogil=True)
def climb(x: Float64, target: Float64, penalty: float, ascent: Ascent, max_steps: int, enough: float) -> float:
    """Newton steps with backtracking; the objective where they end.

    Where a step promises a gain of at most `enough` (half the Newton decrement), it is the last, and taken unseen: so
    near the top the promise is kept, and what remains is of the order of its square.
    """
    theta, start, direction = ascent.theta, ascent.steps[0], ascent.steps[1]
    value, norm = objective(target, penalty, ascent)
    for _ in range(max_steps):
        _factorise(x, ascent.spread, penalty, ascent.tiles, ascent.factor)
        _solve(ascent.factor, ascent.gradient, direction)
        gain = 0.5 * dot(ascent.gradient, direction)
        rate, found = 1.0, gain <= enough
        for f in range(len(theta)):
            start[f] = theta[f]
        if found:
            _step(start, rate, direction, theta)
            return float(value + gain)
        while rate > 1e-9 and not found:
            _step(start, rate, direction, theta)
            ascent.total[0] = evaluate(x, theta, ascent.pull, ascent.spread, ascent.tiles)
            new_value, new_norm = objective(target, penalty, ascent)
            # Near the top the objective is flat to its last bits: there a smaller gradient counts as higher.
            found = new_value > value or (new_value >= value - 1e-12 * ascent.total[0] and new_norm < norm)
            rate *= 0.5
        if not found:
            break
        value, norm = max(value, new_value), new_norm
    return float(value)


@numba.njit(cache=True, nogil=True)
def objective(target: Float64, penalty: float, ascent: Ascent) -> tuple[float, float]:
    """The objective where the ascent stands, and the norm of its gradient, which is filled in."""
    value, square = -ascent.total[0], 0.0
    for f in range(len(target)):
        theta = ascent.theta[f]
        value += theta * (target[f] - penalty * theta)
        ascent.gradient[f] = target[f] - ascent.pull[f] - 2.0 * penalty * theta
        square += ascent.gradient[f] ** 2
    return value, np.sqrt(square)


@numba.njit(cache=True, nogil=True)
def _step(start: Float64, rate: float, direction: Float64, theta: Float64) -> None:
    for f in range(len(theta)):
        theta[f] = start[f] + rate * direction[f]


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def evaluate(x: Float64, theta: Float64, pull: Float64, spread: Float64, tiles: Float64) -> float:
    """The sum of ``log(1 + exp z)`` over the rows; fills `pull` and `spread` as in `Ascent`. Cost O(n k)."""
    n, total = x.shape[1], 0.0
    pull[:] = 0.0
    for first in range(0, n, TILE):
        last = min(first + TILE, n)
        z, chance, product, positive = spread[first:last], tiles[0, : last - first], 1.0, 0.0
        mix(theta, x, first, last, z)
        for i in range(len(z)):
            e = _exp_minus(abs(z[i]))
            share = 1.0 / (1.0 + e)
            product *= 1.0 + e  # 128 numbers up to 2 do not overflow
            positive += max(z[i], 0.0)
            chance[i] = share if z[i] >= 0 else e * share
            z[i] = e * share * share
        total += positive + np.log(product)
        for f in range(len(x)):
            pull[f] += dot(x[f, first:last], chance)
    return float(total)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _exp_minus(a: float) -> float:
    """``exp(-a)`` for a >= 0, and ``exp(-FAR)`` beyond: the series about the middle of the range, and squarings."""
    t = min(a, FAR) * _SCALE - _MIDDLE
    e = C0 + t * (C1 + t * (C2 + t * (C3 + t * (C4 + t * (C5 + t * (C6 + t * (C7 + t * (C8 + t * (C9 + t * C10)))))))))
    for _ in range(SQUARINGS):
        e *= e
    return float(e)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def mix(weights: Float64, x: Float64, first: int, last: int, out: Float64) -> None:
    """``weights @ x[:, first:last]``, four features at a time."""
    whole = len(x) - len(x) % 4
    out[:] = 0.0
    for f in range(0, whole, 4):
        a, b, c, d = x[f, first:last], x[f + 1, first:last], x[f + 2, first:last], x[f + 3, first:last]
        wa, wb, wc, wd = weights[f], weights[f + 1], weights[f + 2], weights[f + 3]
        for i in range(len(out)):
            out[i] += wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i]
    for f in range(whole, len(x)):
        a, wa = x[f, first:last], weights[f]
        for i in range(len(out)):
            out[i] += wa * a[i]


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def gram(x: Float64, weights: Float64, every: int, tiles: Float64, out: Float64) -> None:
    """Lower triangle of ``(x * weights) @ x.T``, from each `every`-th tile; above stands nothing. Cost O(n k^2)."""
    k, n = x.shape
    out[:] = 0.0
    if n < FEW_ROWS:
        for f in range(k):
            for i in range(n):
                scaled = weights[i] * x[f, i]
                for g in range(f + 1):
                    out[f, g] += scaled * x[g, i]
        return
    for first in range(0, n, every * TILE):
        last = min(first + TILE, n)
        u, v, w = tiles[0, : last - first], tiles[1, : last - first], weights[first:last]
        for f in range(0, k, 2):
            h = min(f + 1, k - 1)
            a, b = x[f, first:last], x[h, first:last]
            for i in range(len(w)):
                u[i] = w[i] * a[i]
                v[i] = w[i] * b[i]
            for g in range(0, h + 1, 4):
                if g + 4 <= k:
                    _add_block(x, first, last, f, h, g, u, v, out)
                    continue
                for j in range(g, h + 1):
                    out[f, j] += dot(x[j, first:last], u)
                    if h > f:
                        out[h, j] += dot(x[j, first:last], v)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _add_block(x: Float64, first: int, last: int, f: int, h: int, g: int, u: Float64, v: Float64, out: Float64) -> None:
    """Add to ``out[[f, h], g : g + 4]`` the products of u and v with four features: each is loaded once."""
    a, b, c, d = x[g, first:last], x[g + 1, first:last], x[g + 2, first:last], x[g + 3, first:last]
    ua = ub = uc = ud = va = vb = vc = vd = 0.0
    for i in range(len(u)):
        ua += u[i] * a[i]
        ub += u[i] * b[i]
        uc += u[i] * c[i]
        ud += u[i] * d[i]
        va += v[i] * a[i]
        vb += v[i] * b[i]
        vc += v[i] * c[i]
        vd += v[i] * d[i]
    out[f, g] += ua
    out[f, g + 1] += ub
    out[f, g + 2] += uc
    out[f, g + 3] += ud
    if h > f:
        out[h, g] += va
        out[h, g + 1] += vb
        out[h, g + 2] += vc
        out[h, g + 3] += vd


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _factorise(x: Float64, spread: Float64, penalty: float, tiles: Float64, factor: Float64) -> None:
    """Lower Cholesky factor of minus the objective's Hessian, its diagonal inverted. Cost O(k^3) and that of `gram`."""
    every = max(1, x.shape[1] // (HESSIAN_TILES * TILE))
    gram(x, spread, every, tiles, factor)
    for j in range(len(factor) if every > 1 else 0):
        for i in range(j + 1):
            factor[j, i] *= every
    for j in range(len(factor)):
        square = factor[j, j] + 2.0 * penalty
        for i in range(j):
            square -= factor[j, i] * factor[j, i]
        factor[j, j] = 1.0 / np.sqrt(square)
        for r in range(j + 1, len(factor)):
            entry = factor[r, j]
            for i in range(j):
                entry -= factor[r, i] * factor[j, i]
            factor[r, j] = entry * factor[j, j]


@numba.njit(cache=True, nogil=True)
def _solve(factor: Float64, target: Float64, solution: Float64) -> None:
    """The solution of ``factor factor' s = target``, for a factor with an inverted diagonal."""
    for j in range(len(target)):
        entry = target[j]
        for i in range(j):
            entry -= factor[j, i] * solution[i]
        solution[j] = entry * factor[j, j]
    for j in range(len(target) - 1, -1, -1):
        solution[j] *= factor[j, j]
        for i in range(j):
            solution[i] -= factor[j, i] * solution[j]


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def dot(a: Float64, b: Float64) -> float:
    """Inner product, summed in the order that vector code likes."""
    total = 0.0
    for f in range(len(a)):
        total += a[f] * b[f]
    return total
