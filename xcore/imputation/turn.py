"""One turn of our imputer: scores of the candidates without their own group, and the new chances that follow."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.imputation.candidates import Candidates, State, targets_of
from xcore.imputation.posterior import given_count, given_mean, mean_given_some
from xcore.imputation.ridge import FOLD, LeftOut, Rest, RidgeSystem
from xcore.imputation.sharpness import FLOOR
from xcore.numeric.matrices import Float32, Float64, Int64

_STILL = 1e-3  # a change of a chance that sketches need not follow yet
_GROWTH_STEPS = 20
_OUT = 0.01  # of its first share: a candidate with a lower chance is dropped for good


class Question(NamedTuple):
    """Who of the candidates carries what: how scores are made without the own fold, whether the groups' counts are
    known, how far chances may move before sketches do not suffice, and the exponent of the odds in each turn."""

    candidates: Candidates
    sketch: Float32
    folds: LeftOut
    known: bool
    reach: float
    sharpness: Float64


@numba.njit(cache=True, nogil=True)
def follow(question: Question, labels: Int64, state: State, drift: Float32) -> None:
    """Add to ``drift[k] = sum_i z_i (change of q_ik)`` what changed since the last time, z_i the sketches."""
    pairs, start = question.candidates.pairs, question.candidates.start
    for k in range(len(labels)):
        first_pair, end_pair = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        targets, own = targets_of(question.candidates, labels[k], state.chance), drift[k]
        for pair in range(first_pair, end_pair):
            for i in range(pairs.size[pair]):
                place = start[pair] + i
                change = targets[place - start[first_pair]] - state.targets[place]
                if abs(change) > _STILL:
                    z = question.sketch[pairs.members[pairs.first[pair] + i]]
                    for position in range(len(own)):
                        own[position] += change * z[position]
                    state.targets[place] += change


@numba.njit(cache=True, nogil=True)
def reassign_labels(
    system: RidgeSystem, question: Question, labels: Int64, turn: int, drift: Float32, state: State
) -> tuple[Float64, Float64]:
    """New chances (in place) by the present scores; returns how much of each label moved, and its sum of chances."""
    scores, offset = _fitted_labels(system, question, labels, drift, state)
    _leave_out_labels(question, labels, state.chance, scores, offset)
    moved_and_mass: tuple[Float64, Float64] = condition_labels(question, labels, turn, scores, offset, state)
    return moved_and_mass


@numba.njit(cache=True, nogil=True)
def condition_labels(
    question: Question, labels: Int64, turn: int, scores: Float32, offset: Int64, state: State
) -> tuple[Float64, Float64]:
    """The same by scores without the own group; those of label k begin at ``offset[k]``.

    Where the carriers score nothing the features say nothing about the label, and its chances stay.
    """
    (pairs, start, _), chance = question.candidates, state.chance
    moved, mass = np.zeros(len(labels)), np.zeros(len(labels))
    for k in range(len(labels)):
        first_pair, end_pair = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        first = start[first_pair]
        fitted = scores[offset[k] : offset[k] + start[end_pair] - first]
        scale = _mean_score(fitted, chance[first : start[end_pair]])
        if scale > 1e-9:
            mass[k] = np.sum(chance[first : start[end_pair]])
            growth = 1.0 if question.known else _growth(question.candidates, labels[k], fitted, mass[k])
            for pair in range(first_pair, end_pair):
                own = fitted[start[pair] - first : start[pair + 1] - first]
                moved[k] += _condition(question, pair, turn, own, scale, growth, state)
    return moved, mass


@numba.njit(cache=True, nogil=True)
def _fitted_labels(
    system: RidgeSystem, question: Question, labels: Int64, drift: Float32, state: State
) -> tuple[Float32, Int64]:
    """Fitted scores of the candidates of some labels, one label after the other, and where each label's begin."""
    (pairs, start, _), offset = question.candidates, np.zeros(len(labels) + 1, np.int64)
    for k in range(len(labels)):
        offset[k + 1] = offset[k] + start[pairs.of_label[labels[k] + 1]] - start[pairs.of_label[labels[k]]]
    scores, scratch = np.zeros(offset[-1], np.float32), np.zeros(len(system.rest.scale), np.float32)
    for k in range(len(labels)):
        own = scores[offset[k] : offset[k + 1]]
        _fit(question, labels[k], drift[k], state, own)
        if len(scratch):
            _add_rest(system.rest, question, labels[k], state.chance, own, scratch)
    return scores, offset


@numba.njit(cache=True, nogil=True)
def _leave_out_labels(question: Question, labels: Int64, chance: Float32, scores: Float32, offset: Int64) -> None:
    """Turn fitted scores (in place) into those without the own fold, group by group: its matrix stays in the cache."""
    pairs, start = question.candidates.pairs, question.candidates.start
    counts = pairs.of_label[labels + 1] - pairs.of_label[labels]
    of_block, place, at = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64), 0
    for k in range(len(labels)):
        first_pair = pairs.of_label[labels[k]]
        for pair in range(first_pair, pairs.of_label[labels[k] + 1]):
            of_block[at], place[at] = pair, offset[k] + start[pair] - start[first_pair]
            at += 1
    for i in np.argsort(pairs.group[of_block], kind="mergesort"):
        pair = of_block[i]
        _leave_out(question, pair, chance[start[pair] : start[pair + 1]], scores[place[i] :])


@numba.njit(cache=True, nogil=True, fastmath=True)
def _fit(question: Question, label: int, drift: Float32, state: State, scores: Float32) -> None:
    """Fitted scores of a label's candidates by the joint features; those that are out keep what they have."""
    pairs, start = question.candidates.pairs, question.candidates.start
    first = start[pairs.of_label[label]]
    drifting = np.any(drift != 0)
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        for i in range(pairs.size[pair]):
            place = start[pair] + i
            if state.chance[place] > 0:
                total = state.scores[place]
                if drifting:
                    z = question.sketch[pairs.members[pairs.first[pair] + i]]
                    for position in range(len(drift)):
                        total += z[position] * drift[position]
                scores[place - first] = total


@numba.njit(cache=True, nogil=True)
def _add_rest(rest: Rest, question: Question, label: int, chance: Float32, scores: Float32, scratch: Float32) -> None:
    """Add what the features beyond the joint ones contribute; `scratch` (d - h,) is zero before and after."""
    X, (pairs, start, _) = rest.X, question.candidates
    first = start[pairs.of_label[label]]
    targets = targets_of(question.candidates, label, chance)
    mass, with_mean = 0.0, 0.0
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        for i in range(pairs.size[pair]):
            row, q = pairs.members[pairs.first[pair] + i], targets[start[pair] - first + i]
            mass += q
            with_mean += q * rest.with_mean[row]
            if q > 0:
                for entry in range(X.indptr[row], X.indptr[row + 1]):
                    scratch[X.indices[entry]] += q * X.data[entry] * rest.scale[X.indices[entry]]
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        for i in range(pairs.size[pair]):
            row, total = pairs.members[pairs.first[pair] + i], mass * rest.mean_square - with_mean
            if chance[start[pair] + i] > 0:
                for entry in range(X.indptr[row], X.indptr[row + 1]):
                    total += X.data[entry] * scratch[X.indices[entry]]
                scores[start[pair] - first + i] += total - mass * rest.with_mean[row]
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        for i in range(pairs.size[pair]):
            row = pairs.members[pairs.first[pair] + i]
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                scratch[X.indices[entry]] = 0.0


@numba.njit(cache=True, nogil=True, fastmath=True)
def _leave_out(question: Question, pair: int, chance: Float32, scores: Float32) -> None:
    """Turn a pair's fitted scores (in place) into those of a regression that had no targets in their fold."""
    folds, place = question.folds, question.folds.first[question.candidates.pairs.group[pair]]
    # The identity of leave-one-out for ridge regression, here for whole folds (`LeftOut`): nothing is refitted.
    for fold in range(0, len(chance), FOLD):
        end = min(fold + FOLD, len(chance))
        excess = np.zeros(end - fold, np.float32)
        for i in range(fold, end):
            if chance[i] > 0:
                excess[i - fold] = scores[i] - chance[i]
        for i in range(fold, end):
            if chance[i] > 0:
                total, own = np.float32(0.0), folds.matrices[place : place + len(excess)]
                for j in range(len(excess)):
                    total += own[j] * excess[j]
                scores[i] = chance[i] + total
            place += len(excess)


@numba.njit(cache=True, nogil=True)
def _mean_score(scores: Float32, chance: Float32) -> float:
    """Mean score of a label's carriers."""
    total, count = 0.0, 0.0
    for i in range(len(scores)):
        total += chance[i] * scores[i]
        count += chance[i]
    return total / count


@numba.njit(cache=True, nogil=True)
def _growth(candidates: Candidates, label: int, scores: Float32, mass: float) -> float:
    """By how much the label's mass of chances will have grown when counts that follow from scores, and scores that
    grow with the counts, agree; the turns alone would take long to get there."""
    (pairs, start, _), growth = candidates, 1.0
    first = start[pairs.of_label[label]]
    for _ in range(_GROWTH_STEPS):
        before, total = growth, 0.0
        for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
            total += mean_given_some(scores[start[pair] - first : start[pair + 1] - first], growth)
        growth = total / mass
        if abs(growth - before) < 0.01 * before:
            break
    return growth


@numba.njit(cache=True, nogil=True)
def _condition(
    question: Question, pair: int, turn: int, scores: Float32, scale: float, growth: float, state: State
) -> float:
    """New chances of a pair's candidates (in place), given the group's count; returns the moved mass."""
    carriers, start = question.candidates.pairs.carriers[pair], question.candidates.start
    chance = state.chance[start[pair] : start[pair + 1]]
    evidence = state.evidence[start[pair] : start[pair + 1]]
    within = np.flatnonzero(chance > 0)
    log_odds, posterior = np.empty(len(within)), np.empty(len(within))
    for i in range(len(within)):
        evidence[within[i]] = np.log(max(scores[within[i]], FLOOR * scale))
        log_odds[i] = question.sharpness[turn] * evidence[within[i]]
    if question.known:
        given_count(log_odds, carriers, posterior)
    else:
        given_mean(log_odds, mean_given_some(scores, growth), posterior)
    least = _OUT * carriers / len(chance) if question.known else 0.0
    moved = 0.0
    for i in range(len(within)):
        new = posterior[i] if posterior[i] >= least else 0.0
        moved += abs(new - chance[within[i]])
        chance[within[i]] = new
    return moved
