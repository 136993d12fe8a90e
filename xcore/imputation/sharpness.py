"""How sharply scores tell the members of a group apart: found out by groups that the scores have not seen.

A member's odds are ``s^b``, s its score. Where features say much b is large, and one member gets nearly all of a
label; where they say little, b is small and chances stay near the group's share. The odds that are reported are ``(s /
(1 - s))^b``: the score of a regression is an estimate of a chance, and labels with high scores are told apart better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from xcore.imputation.posterior import likelihood_of_count, likelihood_of_some
from xcore.numeric.matrices import Float32, Float64, Int64

FLOOR = 0.05  # of the mean score of a label's carriers: how much a score near 0 can exclude
CEILING = 0.95  # the highest chance that a score stands for
_LOWEST, _HIGHEST = -8, 12  # a quarter to eight
_STEPS = 30


@numba.njit(cache=True, nogil=True)
def log_odds_of(log_scores: Float32) -> Float32:
    """Log odds of scores that are taken as chances, from their logs; one number or an array of them."""
    log_odds: Float32 = log_scores - np.log1p(-np.minimum(np.exp(log_scores), CEILING))
    return log_odds


class Judged(NamedTuple):
    """Some groups with the evidence of their members for some labels.

    Attributes
    ----------
    first : int64 (groups + 1,)
        Where the members of each group begin.
    evidence : float32 (members, labels)
        Log of each member's score, or its log odds. A constant for each label does not matter.
    counts : float64 (groups, labels)
        How many members carry the label; where counts are not known, 1 if some do.
    known : whether counts are known.
    weights : float64 (labels,)
        How much each label counts.
    """

    first: Int64
    evidence: Float32
    counts: Float64
    known: bool
    weights: Float64

    def likelihood(self, sharpness: float) -> Float64:
        """Log likelihood of each group's labels (groups,), each label with its own best prior odds."""
        likelihood: Float64 = _likelihood(self, sharpness, self.prior(sharpness))
        return likelihood

    def squared_error(self, sharpness: float) -> float:
        """Of the expected counts of the groups; where counts are not known, of the chance that some member carries."""
        chances = self.chances(sharpness)
        if self.known:
            expected = np.add.reduceat(chances, self.first[:-1], axis=0)
        else:
            expected = 1.0 - np.multiply.reduceat(1.0 - chances, self.first[:-1], axis=0)
        return float((np.square(expected - self.counts) @ self.weights).sum())

    def prior(self, sharpness: float) -> Float64:
        """Log odds of each label (labels,), with which as many members are expected to carry it as do."""
        prior: Float64 = _prior(self, sharpness)
        return prior

    def chances(self, sharpness: float) -> Float64:
        """Chance (members, labels) of each member before its group's own labels are looked at."""
        log_odds = self.prior(sharpness)[None] + sharpness * self.evidence
        return 1.0 / (1.0 + np.exp(-log_odds))


def best_sharpness(value: Callable[[float], float]) -> float:
    """The exponent of the highest value: coarse steps first, then finer ones around the best, then a parabola."""
    found: dict[int, float] = {}

    def value_at(place: int) -> float:
        if place not in found:
            found[place] = value(_at(place))
        return found[place]

    best = max(range(_LOWEST, _HIGHEST + 1, 4), key=value_at)
    for step in (2, 1):
        best = max((p for p in (best - step, best, best + step) if _LOWEST <= p <= _HIGHEST), key=value_at)
    if best in (_LOWEST, _HIGHEST):
        return _at(best)
    before, most, after = value_at(best - 1), value_at(best), value_at(best + 1)
    return _at(best + float(np.clip(0.5 * (after - before) / max(2 * most - before - after, 1e-12), -0.5, 0.5)))


def likeliest(judged: Judged) -> float:
    """The exponent with which the labels of groups have the highest likelihood."""
    return best_sharpness(lambda sharpness: float(judged.likelihood(sharpness).sum()))


def _at(place: float) -> float:
    """Exponents in steps of a quarter octave around 1."""
    return float(2.0 ** (place / 4))


def ranking(judged: Judged, sharpness: float) -> tuple[float, float]:
    """How often a group that has a label expects more of it than a group that lacks it, and the standard error.

    The mean over labels, each as often as groups have it; the error is that between labels. A half is chance.
    """
    sizes = np.diff(judged.first)
    expected = np.add.reduceat(judged.chances(sharpness), judged.first[:-1], axis=0) / sizes[:, None]
    wins, pairs = [], []
    for label in range(judged.counts.shape[1]):
        with_it = judged.counts[:, label] > 0
        n_with, n_without = int(with_it.sum()), int((~with_it).sum())
        if n_with and n_without:
            rank = np.empty(len(sizes))
            rank[np.argsort(expected[:, label], kind="stable")] = np.arange(len(sizes))
            wins.append((rank[with_it].sum() - n_with * (n_with - 1) / 2) / (n_with * n_without))
            pairs.append(n_with)
    if not pairs:
        return 0.5, 0.5
    shares, weights = np.array(wins), np.array(pairs) / np.sum(pairs)
    mean = float(shares @ weights)
    return mean, float(np.sqrt(np.sum((weights * (shares - mean)) ** 2)))


@numba.njit(cache=True, nogil=True)
def _prior(judged: Judged, sharpness: float) -> Float64:
    """Log odds (labels,) to add, with which as many members (or groups, of sets) are expected as carry each label."""
    shifts = np.zeros(judged.counts.shape[1])
    if not len(judged.evidence):  # all groups are larger than what is looked at
        return shifts
    for k in range(len(shifts)):
        target = float(np.sum(judged.counts[:, k]))
        most = float(len(judged.evidence)) if judged.known else float(len(judged.counts))
        target = min(max(target, 1e-3), most - 1e-3)
        against = np.exp(-sharpness * judged.evidence[:, k].astype(np.float64))  # once: the steps only shift all odds
        low, high = -60.0, 60.0
        shift = float(np.log(target / most))
        for _ in range(_STEPS):
            expected, slope = _expected(judged, against, shift)
            if abs(expected - target) < 1e-3 * target:
                break
            if expected > target:
                high = shift
            else:
                low = shift
            shift -= (expected - target) / max(slope, 1e-12)
            if not low < shift < high:
                shift = 0.5 * (low + high)
        shifts[k] = shift
    return shifts


@numba.njit(cache=True, nogil=True)
def _expected(judged: Judged, against: Float64, shift: float) -> tuple[float, float]:
    """Members that are expected to carry a label (of sets, groups with such a member), and the slope in the shift.

    `against` (members,) are the odds against each member before the shift of the log odds.
    """
    total, slope, scale = 0.0, 0.0, np.exp(-shift)
    for group in range(len(judged.counts)):
        none, mass = 1.0, 0.0
        for i in range(judged.first[group], judged.first[group + 1]):
            chance = 1.0 / (1.0 + scale * against[i])
            none *= 1.0 - chance
            mass += chance
            if judged.known:
                slope += chance * (1.0 - chance)
        total += mass if judged.known else 1.0 - none
        if not judged.known:
            slope += none * mass
    return total, slope


@numba.njit(cache=True, nogil=True)
def _likelihood(judged: Judged, sharpness: float, prior: Float64) -> Float64:
    out = np.zeros(len(judged.counts))
    for group in range(len(out)):
        own = judged.evidence[judged.first[group] : judged.first[group + 1]]
        log_odds, scratch = np.empty(len(own)), np.empty(len(own))
        for k in range(len(prior)):
            for i in range(len(own)):
                log_odds[i] = prior[k] + sharpness * own[i, k]
            if judged.known:
                value = likelihood_of_count(log_odds, judged.counts[group, k], scratch)
            elif judged.counts[group, k] > 0:
                value = likelihood_of_some(log_odds, scratch)
            else:
                value = 0.0
                for i in range(len(own)):
                    value -= max(log_odds[i], 0.0) + np.log1p(np.exp(-abs(log_odds[i])))
            out[group] += judged.weights[k] * value
    return out
