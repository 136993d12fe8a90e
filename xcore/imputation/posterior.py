"""Who of a group carries a label, given how many do: exact posteriors of independent coins with a known sum."""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Float64

_EXACT_UP_TO = 32
_TINY = 1e-280


@numba.njit(cache=True, nogil=True)
def given_count(log_odds: Float64, count: int, posterior: Float64) -> None:
    """P(coin i shows heads | `count` of the N coins do), from the log odds of each (N,) into `posterior` (N,).

    One head: the softmax. More: the conditional Bernoulli distribution, by forward and backward convolution in
    O(N count). Above 32 heads the coins are shifted by one common log odds until they expect `count` heads, which is
    the limit for many coins. The posteriors add up to `count`, and none exceeds 1.
    """
    n = len(log_odds)
    if count >= n:
        posterior[:] = 1.0
    elif count == 1:
        posterior[:] = np.exp(log_odds - np.max(log_odds))
        posterior /= np.sum(posterior)
    else:
        # A common shift does not change the exact posterior: it only keeps the sums away from 0.
        exact = count <= _EXACT_UP_TO
        _shifted(log_odds, count, 0.1 if exact else 1e-9, posterior)
        if exact:
            _condition_on_sum(posterior, count)


@numba.njit(cache=True, nogil=True)
def given_mean(log_odds: Float64, mean: float, posterior: Float64) -> None:
    """The same where `mean` of them do on average (1 to N): one or the other of the two counts next to it."""
    least = int(mean)
    given_count(log_odds, least, posterior)
    if mean > least:
        one_more = np.empty(len(log_odds))
        given_count(log_odds, least + 1, one_more)
        for i in range(len(log_odds)):
            posterior[i] += (mean - least) * (one_more[i] - posterior[i])


@numba.njit(cache=True, nogil=True)
def mean_given_some(chances: Float32, times: float) -> float:
    """Expected number of heads, given at least one, if each coin shows heads with `times` its chance."""
    none, total = 1.0, 0.0
    for chance in chances:
        p = min(max(times * chance, 0.0), 1.0)
        total += p
        none *= 1.0 - p
    return min(max(total / (1.0 - none), 1.0), float(len(chances))) if none < 1.0 else 1.0


@numba.njit(cache=True, nogil=True)
def likelihood_of_count(log_odds: Float64, count: float, posterior: Float64) -> float:
    """log P(`count` of the N coins show heads), and as `given_count` their posteriors, exact for every count.

    A count between two whole numbers is the mixture of the two. Cost O(N count). The shift that `given_count` makes
    keeps the sums in range here too; it changes the likelihood by a known factor.
    """
    n = len(log_odds)
    least = int(min(max(count, 0.0), float(n)))
    share = min(max(count, 0.0), float(n)) - least
    value = _likelihood(log_odds, least, posterior)
    if share > 0.0:
        one_more = np.empty(n)
        value += share * (_likelihood(log_odds, least + 1, one_more) - value)
        for i in range(n):
            posterior[i] += share * (one_more[i] - posterior[i])
    return float(value)


@numba.njit(cache=True, nogil=True)
def likelihood_of_some(log_odds: Float64, posterior: Float64) -> float:
    """log P(at least one of the N coins shows heads), and P(coin i shows heads | at least one does)."""
    none = 0.0
    for i in range(len(log_odds)):
        none -= _softplus(log_odds[i])
    # From log P(none) close to 0 on, all coins are unlikely, and exactly one shows heads.
    some = -np.expm1(none)
    if some < 1e-12:
        highest = np.max(log_odds)
        posterior[:] = np.exp(log_odds - highest)
        total = np.sum(posterior)
        posterior /= total
        return float(highest + np.log(total))
    for i in range(len(log_odds)):
        posterior[i] = min(1.0 / (1.0 + np.exp(-log_odds[i])) / some, 1.0)
    return float(np.log(some))


@numba.njit(cache=True, nogil=True)
def _likelihood(log_odds: Float64, count: int, posterior: Float64) -> float:
    n, value = len(log_odds), 0.0
    for i in range(n):
        value -= _softplus(log_odds[i])
    if count == 0:
        posterior[:] = 0.0
        return value
    if count == n:
        posterior[:] = 1.0
        return float(value + np.sum(log_odds))
    shift = _shifted(log_odds, count, 0.1, posterior)
    for i in range(n):
        value += _softplus(log_odds[i] + shift)
    return float(value - count * shift + np.log(max(_condition_on_sum(posterior, count), _TINY)))


@numba.njit(cache=True, nogil=True)
def _softplus(x: float) -> float:
    """log(1 + exp(x)), for any x."""
    return float(max(x, 0.0) + np.log1p(np.exp(-abs(x))))


@numba.njit(cache=True, nogil=True)
def _shifted(log_odds: Float64, count: int, tolerance: float, probability: Float64) -> float:
    """Probabilities after shifting all log odds equally, so that `count` heads are expected, up to a relative error.

    Returns the shift.

    Newton's method, from the shift that would be right for unlikely coins; bisection where a step leaves the bracket.
    """
    highest = np.max(log_odds)
    low, high = -highest - 30.0, -np.min(log_odds) + 30.0
    shift = np.log(count) - highest - np.log(np.sum(np.exp(log_odds - highest)))
    used = shift
    for _ in range(60):
        used, expected, slope = shift, 0.0, 0.0
        for i in range(len(log_odds)):
            probability[i] = 1.0 / (1.0 + np.exp(-(log_odds[i] + shift)))
            expected += probability[i]
            slope += probability[i] * (1.0 - probability[i])
        if abs(expected - count) < tolerance * count:
            break
        if expected > count:
            high = shift
        else:
            low = shift
        shift -= (expected - count) / max(slope, _TINY)
        if not low < shift < high:
            shift = 0.5 * (low + high)
    return float(used)


@numba.njit(cache=True, nogil=True)
def _condition_on_sum(probability: Float64, count: int) -> float:
    """Replace P(i) by P(i | the sum is `count`), in place; returns the chance of that sum.

    `before[i, c]` is the chance of c heads among coins 0..i-1, `after` the same for the coins from i on.
    """
    n = len(probability)
    before, after = np.zeros((n + 1, count + 1)), np.zeros(count + 1)
    before[0, 0] = 1.0
    for i in range(n):
        p = probability[i]
        before[i + 1, 0] = before[i, 0] * (1.0 - p)
        for c in range(1, count + 1):
            before[i + 1, c] = before[i, c] * (1.0 - p) + before[i, c - 1] * p
    total = before[n, count]
    if total < _TINY:
        return float(total)
    after[0] = 1.0
    for i in range(n - 1, -1, -1):
        p, joint = probability[i], 0.0
        for c in range(count):
            joint += before[i, c] * after[count - 1 - c]
        for c in range(count, 0, -1):
            after[c] = after[c] * (1.0 - p) + after[c - 1] * p
        after[0] *= 1.0 - p
        probability[i] = min(p * joint / total, 1.0)
    return float(total)
