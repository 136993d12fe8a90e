"""Losses of the methods, and their derivatives by the scores; scores are ``xi_y = x . w_y + b_y``.

A positive label y is met with m negatives y'. Three families:

- separable (adversarial, uniform, frequency, nce): every score has a loss of its own, Eq. 6 of the paper,
  ``softplus(-t_y) + lam r_y^2 + 1/m sum of [softplus(t_y') + lam r_y'^2]``, where ``t = xi + a log p_n`` and
  ``r = xi + b log p_n``: (a, b) is (0, 1) for adversarial, (0, 0) for uniform and frequency, (-1, 0) for nce.
- one-vs-each: ``(C - 1)/m sum of softplus(xi_y' - xi_y)``, an upper bound of ``-log softmax`` for all y' together.
- augment-and-reduce: ``log eta - 1 + (1 + (C - 1)/m sum of exp(xi_y' - xi_y)) / eta``, an upper bound for any eta > 0
  that is tight at ``eta = 1 + sum of exp(xi_y' - xi_y)`` over all y'.
"""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Float64

LARGEST_EXPONENT = 80.0


@numba.njit(cache=True, nogil=True)
def softplus(t: float) -> float:
    """``log(1 + exp(t))``."""
    return max(t, 0.0) + float(np.log1p(np.exp(-abs(t))))


@numba.njit(cache=True, nogil=True)
def separable(
    score: float, log_noise: float, is_positive: bool, shift: float, centre: float, strength: float
) -> tuple[float, float]:
    """Loss of one score and its derivative, before the factor 1/m of negatives."""
    t = score + shift * log_noise
    r = score + centre * log_noise
    # One exponential serves loss and slope, and it cannot overflow: its argument is never positive.
    e = np.exp(-abs(t))
    rest = np.log1p(e) + strength * r * r
    likelier = 1.0 / (1.0 + e)
    chance = likelier if t >= 0 else e * likelier
    if is_positive:
        return max(-t, 0.0) + rest, chance - 1.0 + 2.0 * strength * r
    return max(t, 0.0) + rest, chance + 2.0 * strength * r


@numba.njit(cache=True, nogil=True)
def one_vs_each(scores: Float32, n_others: int, slopes: Float32) -> float:
    """Loss of one row's scores (1 + m,), the positive first; fills their derivatives."""
    m = len(scores) - 1
    scale, loss = n_others / max(m, 1), 0.0
    slopes[:] = 0.0
    for j in range(1, m + 1):
        t = np.float64(scores[j]) - np.float64(scores[0])
        loss += scale * softplus(t)
        slope = scale / (1.0 + np.exp(-t)) if t > -LARGEST_EXPONENT else 0.0
        slopes[j] += slope
        slopes[0] -= slope
    return loss


@numba.njit(cache=True, nogil=True)
def augment_and_reduce(
    scores: Float32, n_others: int, etas: Float64, place: int, rate: float, slopes: Float32
) -> float:
    """Move ``etas[place]`` towards its estimate by `rate`; then the loss of scores (1 + m,), and their derivatives."""
    m = len(scores) - 1
    scale, total = n_others / max(m, 1), 1.0
    for j in range(1, m + 1):
        total += scale * np.exp(min(np.float64(scores[j]) - np.float64(scores[0]), LARGEST_EXPONENT))
    # Damped, since a row sees a sample: the estimate of one step alone would make the bound noisy.
    etas[place] += rate * (total - etas[place])
    eta = etas[place]
    slopes[:] = 0.0
    for j in range(1, m + 1):
        slope = scale * np.exp(min(np.float64(scores[j]) - np.float64(scores[0]), LARGEST_EXPONENT)) / eta
        slopes[j] += slope
        slopes[0] -= slope
    return float(np.log(eta) - 1.0 + total / eta)
