"""From a ranking score to a probability: one logistic curve per label, close to the common one if offers are few."""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Float64, Int64, TopK

SMALLEST_SCORE, LARGEST_SCORE = 1e-30, 1 - 1e-7
PRIOR_OFFERS = 100.0  # the common curve weighs as much as this many offers of a label; chosen on EURLEX57K dev rows
NEWTON_STEPS = 50


def fit_curves(top: TopK, truth: CSR) -> tuple[Float32, Float32]:
    """Slopes and offsets, float32 (L,) each, of ``P(label is true) = sigmoid(slope * logit(score) + offset)``.

    Parameters
    ----------
    top : TopK (n, k)
        Labels offered, with scores in (0, 1], to rows that the model was not trained on.
    truth : CSR (n, L)
        Their labels. A value below 1 is the chance that the label is the row's: the curve learns that share.

    Notes
    -----
    The common curve has the largest likelihood over all offers (Platt, 1999). A label's own curve has the largest
    likelihood over its own offers, less a penalty for its distance from the common curve that weighs as much as
    `PRIOR_OFFERS` average offers: a label with many offers gets its own curve, one with few keeps the common one. A
    curve that would fall with the score is replaced by the common one. Cost O(n k) a Newton step.
    """
    row, place = np.nonzero(top.labels != NO_LABEL)
    label = top.labels[row, place]
    x = _logits(top.scores[row, place])
    n_labels = truth.shape[1]
    y = np.asarray(truth[row, label], np.float64).reshape(-1)
    common = _fit(x, y, np.array([1.0, 0.0]), np.full((2, 2), 1e-9))
    chance = 1 / (1 + np.exp(-common[0] * x - common[1]))
    spread = chance * (1 - chance)
    moments = np.array([[spread @ x**2, spread @ x], [spread @ x, spread.sum()]])
    by_label = np.argsort(label, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(label, minlength=n_labels)))
    curves = _fit_labels(x[by_label], y[by_label], ends, common, moments * (PRIOR_OFFERS / max(len(x), 1)))
    return curves[:, 0].astype(np.float32), curves[:, 1].astype(np.float32)


@numba.njit(cache=True, nogil=True)
def logit(score: float) -> np.float32:
    """``log(score / (1 - score))`` of a score that is kept from 0 and 1."""
    inside = min(max(score, SMALLEST_SCORE), LARGEST_SCORE)
    return np.float32(np.log(inside / (1 - inside)))


@numba.njit(cache=True, nogil=True)
def _logits(scores: Float32) -> Float64:
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = logit(scores[i])
    return found


@numba.njit(cache=True, nogil=True)
def _fit_labels(x: Float64, y: Float64, ends: Int64, common: Float64, precision: Float64) -> Float64:
    curves = np.empty((len(ends) - 1, 2))
    for label in range(len(curves)):
        begin, end = ends[label], ends[label + 1]
        curve = _fit(x[begin:end], y[begin:end], common, precision) if end > begin else common
        curves[label] = curve if curve[0] > 0 else common
    return curves


@numba.njit(cache=True, nogil=True)
def _fit(x: Float64, y: Float64, prior: Float64, precision: Float64) -> Float64:
    """Slope and offset ``c`` of least ``-log-likelihood + 1/2 (c - prior)' precision (c - prior)``, by Newton steps."""
    curve, loss = prior.copy(), _loss(x, y, prior, prior, precision)
    for _ in range(NEWTON_STEPS):
        away = curve - prior
        g0 = precision[0, 0] * away[0] + precision[0, 1] * away[1]
        g1 = precision[1, 0] * away[0] + precision[1, 1] * away[1]
        h00, h01, h11 = precision[0, 0] + 1e-9, precision[0, 1], precision[1, 1] + 1e-9
        for i in range(len(x)):
            chance = 1 / (1 + np.exp(-curve[0] * x[i] - curve[1]))
            spread = chance * (1 - chance)
            g0 += (chance - y[i]) * x[i]
            g1 += chance - y[i]
            h00 += spread * x[i] * x[i]
            h01 += spread * x[i]
            h11 += spread
        determinant = h00 * h11 - h01 * h01
        step = np.array([h11 * g0 - h01 * g1, h00 * g1 - h01 * g0]) / max(determinant, 1e-12)
        rate, new_loss = 1.0, loss
        while rate > 1e-6:
            new_loss = _loss(x, y, curve - rate * step, prior, precision)
            if new_loss <= loss:
                break
            rate *= 0.5
        if not new_loss < loss - 1e-9 * abs(loss):
            break
        curve, loss = curve - rate * step, new_loss
    return curve


@numba.njit(cache=True, nogil=True)
def _loss(x: Float64, y: Float64, curve: Float64, prior: Float64, precision: Float64) -> float:
    a, b = curve[0] - prior[0], curve[1] - prior[1]
    total = 0.5 * (precision[0, 0] * a * a + 2 * precision[0, 1] * a * b + precision[1, 1] * b * b)
    for i in range(len(x)):
        z = curve[0] * x[i] + curve[1]
        total += max(z, 0.0) + np.log1p(np.exp(-abs(z))) - y[i] * z
    return float(total)
