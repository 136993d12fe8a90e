"""Newton ascent of one node of the sampler tree: a logistic model of two sides, with a penalty on its parameters."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.matrices import Float64

GRADIENT_NORM = 1e-7  # at the optimum, for every thousand rows
TILE = 128  # rows whose features stay in the cache
KEPT_WHILE = 0.25  # a factorised Hessian serves again while a step with it shrinks the gradient to this share


class Ascent(NamedTuple):
    """What Newton steps leave behind for the next ones."""

    gradient: Float64  # (k + 1,)
    factor: Float64  # (k + 1, k + 1), of the Hessian; the labels' sides do not matter to it
    is_kept: npt.NDArray[np.bool_]  # (1,): whether the factor is still good enough


@numba.njit(cache=True, nogil=True)
def climb(
    x: Float64, right: npt.NDArray[np.bool_], penalty: float, theta: Float64, max_steps: int, ascent: Ascent
) -> float:
    """Newton ascent with backtracking from `theta`, in place; the objective where it ends."""
    gradient, factor, is_kept = ascent
    spread, start = np.empty(x.shape[1]), np.empty(len(x))
    value: float = objective(x, right, penalty, theta, gradient, spread)
    norm, limit = np.sqrt(dot(gradient, gradient)), GRADIENT_NORM * max(1.0, x.shape[1] / 1000)
    for _ in range(max_steps):
        if norm <= limit:
            break
        if not is_kept[0]:
            _factorise(x, spread, penalty, factor)
        direction = _solved(factor, gradient)
        start[:] = theta
        rate, found, new_value, new_norm = 1.0, False, value, norm
        while rate > 1e-9 and not found:
            theta[:] = start + rate * direction
            new_value = objective(x, right, penalty, theta, gradient, spread)
            new_norm = np.sqrt(dot(gradient, gradient))
            # Near the top the objective is flat to its last bits: there a smaller gradient counts as higher.
            found = new_value > value or (new_value >= value - 1e-12 * abs(value) and new_norm < norm)
            rate *= 0.5
        if found:
            is_kept[0] = new_norm < KEPT_WHILE * norm
            value, norm = max(value, new_value), new_norm
            continue
        theta[:] = start
        objective(x, right, penalty, theta, gradient, spread)
        if not is_kept[0]:
            break
        is_kept[0] = False
    return value


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def objective(
    x: Float64, right: npt.NDArray[np.bool_], penalty: float, theta: Float64, gradient: Float64, spread: Float64
) -> float:
    """The node's objective; fills its gradient (k + 1,) and ``sigmoid'(theta . x)`` of each row. Cost O(n k)."""
    k, n = x.shape
    value, pulls = 0.0, np.empty(min(n, TILE))
    for f in range(k):
        gradient[f] = -2.0 * penalty * theta[f]
        value -= penalty * theta[f] * theta[f]
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        z, product = spread[first : first + size], 1.0  # at first, z; a product of 128 numbers up to 2 is no overflow
        z[:] = 0.0
        for f in range(k):
            _add(theta[f], x[f, first : first + size], z)
        for i in range(size):
            e = np.exp(-abs(z[i]))
            share = 1.0 / (1.0 + e)
            product *= 1.0 + e
            chance = share if z[i] >= 0 else e * share
            value -= max(-z[i] if right[first + i] else z[i], 0.0)
            pulls[i] = (1.0 if right[first + i] else 0.0) - chance
            z[i] = e * share * share
        value -= np.log(product)
        for f in range(k):
            gradient[f] += dot(x[f, first : first + size], pulls)
    return value


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _factorise(x: Float64, spread: Float64, penalty: float, factor: Float64) -> None:
    """Lower Cholesky factor of minus the objective's Hessian. Cost O(n k^2 + k^3)."""
    k, n = x.shape
    factor[:] = 0.0
    scaled = np.empty(min(n, TILE))
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        for f in range(k):
            scaled[:size] = spread[first : first + size] * x[f, first : first + size]
            for g in range(f + 1):
                factor[f, g] += dot(x[g, first : first + size], scaled)
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


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def dot(a: Float64, b: Float64) -> float:
    """Inner product, summed in the order that vector code likes."""
    total = 0.0
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _add(scale: float, x: Float64, out: Float64) -> None:
    for i in range(len(x)):
        out[i] += scale * x[i]
