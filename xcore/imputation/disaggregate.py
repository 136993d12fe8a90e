"""Our own imputer: a discriminative model of all labels, and the posterior of who carries what, fitted in turns."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numba
import numpy as np
from pydantic import Field

from xcore import cholesky
from xcore.components import Report
from xcore.grouping import Groups
from xcore.imputation.base import Imputed, Imputer, Pairs, rows_and_labels, rows_by_group
from xcore.imputation.beginning import first_scores
from xcore.imputation.posterior import given_count, given_some
from xcore.imputation.ridge import FOLD, JointRows, LeftOut, Rest, RidgeSystem, left_out, ridge_system, sketch_rows
from xcore.kernels import even_blocks, over_blocks, single_threaded_blas
from xcore.matrices import CSR, Float32, Float64, Int64, normalise_rows

_BLOCK_FLOATS = 16_000_000
_SHARPNESS = 2.2
_FLOOR = 0.05
_LEAST = _SHARPNESS * np.log(_FLOOR)
_SETTLED = 0.05
_FEW_CARRIERS = 5
_FEW_GROUPS = 1024
_ERROR = 0.0075  # of a score, which sketched changes may cause
_STILL = 1e-3  # a change of a chance that sketches need not follow yet
_OUT = 0.1  # of its first share: a candidate whose chance falls below is out for good


class Disaggregate(Imputer):
    """Discriminative disaggregation: which members explain their group's labels, judged against all other groups.

    Two steps in turns, from a uniform start:

    1. Ridge regression of all labels on the features, ``W = (X'X + mu I)^-1 X'Q``, where Q holds the chances q that a
       row carries a label: 0 in all groups without it, so that negative groups speak too. One factorisation serves
       all labels and rounds. At first all members of a pair have the same chance: where groups are few, one solution
       a group serves all labels (`first_scores`). Later a label is solved again when its chances have moved so far
       that `sketch_rows` would put scores off (`_reach`); smaller changes, and labels of at most 5 carriers, are
       followed by these sketches, which cost no solve.
    2. Within each (group, label) pair, new q from the scores s that the members would get from a regression without
       their group (`LeftOut`; else a group of similar members confirms whatever it was given first). The odds of a
       member are ``max(s / s_k, 0.05)^2.2``, s_k the mean score of the label's carriers, conditioned exactly on the
       group's count (`given_count`). Where counts are not known, s_k is the mean of the groups' best scores, and the
       condition is "at least one" (`given_some`).

    A label is done when its chances move by less than 5 %. The `count` best members of each pair become positives (as
    many as are expected where counts are not known), and their q is the confidence. The exponent was chosen once, on
    EURLEX57K, as the one whose confidences are right on average; the floor says how much a score near 0 can exclude.

    Cost O(h nnz(X) + h^3) once, then O(nnz of the candidates + h^2 labels to be solved) a round, with
    h = min(d, `joint_features`); memory O(nnz(X) + candidates + h^2 + n g) and a block of labels for each thread.
    Features beyond the h of most energy count as uncorrelated with all others. Rows in no group are left out of the
    regression.
    """

    kind: Literal["disaggregate"] = "disaggregate"
    rounds: int = Field(5, ge=1, le=100, description="Most turns of regression and reassignment.")
    penalty: float = Field(3.0, gt=0, le=1e6, description="Ridge penalty (mu), in units of one row.")
    joint_features: int = Field(
        6000, ge=1, le=30_000, description="Features of most energy whose correlations are modelled; bounds memory."
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        X, groups, original = rows_by_group(X, groups)
        pairs, known = Pairs.of(groups), groups.merge == "list"
        system = ridge_system(normalise_rows(X), np.unique(groups.members.indices), self.penalty, self.joint_features)
        sketch = sketch_rows(system)
        folds = left_out(system.rest, sketch, groups)
        overlap = bool((np.bincount(groups.members.indices) > 1).any())
        question = _Question(pairs, pairs.candidates(), sketch, folds, known, overlap, _reach(system, sketch))
        state = _State.of(np.repeat(_first_shares(pairs, groups), pairs.size).astype(np.float32))
        chance, blocks = state.chance, _blocks(system, pairs, question.start, state.chance)
        done = 0

        def answer(block: _Block) -> int:
            nonlocal done
            label_rounds = self._answer(system, question, block, state, begun)
            done += 1
            report(done, len(blocks))
            return label_rounds

        with single_threaded_blas():
            begun = groups.n_groups <= _FEW_GROUPS and not overlap
            if begun:
                first_scores(system, pairs, question.start, chance, state.scores)
                state.targets[:] = chance
            label_rounds = sum(over_blocks(answer, blocks))
        rows, labels, confidence = _best_members(pairs, question.start, chance, known)
        Y = rows_and_labels(original[rows], labels, confidence, (groups.n_rows, groups.n_labels))
        mean = float(confidence.mean(dtype=np.float64)) if len(confidence) else 0.0
        n_used = int((np.diff(pairs.of_label) > 0).sum())
        return Imputed(Y, {"mean_confidence": mean, "mean_rounds": label_rounds / max(n_used, 1)})

    def _answer(self, system: RidgeSystem, question: _Question, block: _Block, state: _State, begun: bool) -> int:
        """Regression and reassignment in turns until the chances of a block's labels settle; returns labels x turns."""
        active, label_rounds = block.labels, 0
        drift = np.zeros((len(active), question.sketch.shape[1]), np.float32)
        drifted = np.full(len(active), 0.0 if begun or block.sketched else np.inf)
        for turn in range(self.rounds):
            if turn or not begun:
                far = (drifted > question.reach) & (not block.sketched)
                drift[far], drifted[far] = 0.0, 0.0
                _regress(system, question, active[far], state)
                _follow(question, active, state, drift)
            moved, mass = _reassign_labels(system, question, active, drift, state)
            label_rounds += len(active)
            on = moved > _SETTLED * mass
            active, drift, drifted = active[on], drift[on], (drifted + moved)[on]
            if not len(active):
                break
        return label_rounds


class _State(NamedTuple):
    """What changes from turn to turn, for each candidate (all float32).

    Attributes
    ----------
    chance : that it carries the label.
    targets : what the scores below, and the sketched changes since, have seen of the chances.
    scores : fitted scores of the last exact regression, by the joint features.
    """

    chance: Float32
    targets: Float32
    scores: Float32

    @classmethod
    def of(cls, chance: Float32) -> _State:
        return cls(chance, np.zeros_like(chance), np.zeros_like(chance))


class _Question(NamedTuple):
    """Who carries what: the pairs, where the candidates of each start, how scores are made without the own fold, and
    how far chances may move before sketches do not suffice."""

    pairs: Pairs
    start: Int64
    sketch: Float32
    folds: LeftOut
    known: bool
    overlap: bool
    reach: float


class _Block(NamedTuple):
    """Labels that are worked on together, and whether rows are compared by their sketches."""

    labels: Int64
    sketched: bool


def _blocks(system: RidgeSystem, pairs: Pairs, start: Int64, chance: Float32) -> list[_Block]:
    """Labels of few carriers are compared by sketches: the error, which grows with the root of their number, is small,
    and h^2 would be a high price. Their blocks are small too, to stay in the processor's cache."""
    carriers = np.add.reduceat(np.append(chance, 0.0), start[pairs.of_label[:-1]]) * (np.diff(pairs.of_label) > 0)
    few = (carriers > 0) & (carriers <= _FEW_CARRIERS)
    many = np.flatnonzero((carriers > 0) & ~few)
    rare = np.flatnonzero(few)
    width = int(np.clip(_BLOCK_FLOATS // max(system.n_joint, 1), 1, 256))
    # The dear ones first, or one thread would end long after the other.
    return [
        *(_Block(many[first : first + width], False) for first in range(0, len(many), width)),
        *(_Block(rare[first : first + 16], True) for first in range(0, len(rare), 16)),
    ]


def _reach(system: RidgeSystem, sketch: Float32) -> float:
    """Chances that may move before sketches put a score off by more than 0.0075.

    Changes that add up to c put it off by about ``|z|^2 sqrt(c / r)``, z of r numbers the sketch of a row.
    """
    n, r = sketch.shape
    if system.n_joint <= r:
        return float("inf")
    squared_length = float(np.einsum("ij,ij->i", sketch, sketch).sum(dtype=np.float64)) / max(n, 1)
    return float(r * (_ERROR / max(squared_length, 1e-6)) ** 2)


def _first_shares(pairs: Pairs, groups: Groups) -> Float64:
    """The share of each pair's members that carry the label; where counts are unknown, an estimate.

    A label in a share f of the groups, whose carriers are spread at random, has a rate r in a row with
    ``1 - (1 - r)^size = f``; a group that has it at all then has ``size r / f`` carriers.
    """
    if groups.merge == "list":
        return pairs.carriers / pairs.size
    n_groups = max(int((groups.sizes > 0).sum()), 1)
    of_groups = np.repeat(np.diff(pairs.of_label), np.diff(pairs.of_label)) / n_groups
    rate = 1.0 - np.power(np.maximum(1.0 - of_groups, 1e-3), 1.0 / pairs.size)
    return np.clip(rate / of_groups, 1.0 / pairs.size, 1.0)


def _regress(system: RidgeSystem, question: _Question, labels: Int64, state: _State) -> None:
    """Fit the chances of some labels exactly, and score their candidates."""
    weights = np.zeros((len(labels), system.n_joint), np.float32)
    _sum_targets(system.X, question, labels, state, weights)
    cholesky.solve(system.factor, weights)
    _score(system.X, question, labels, weights, state)


@numba.njit(cache=True, nogil=True)
def _sum_targets(X: JointRows, question: _Question, labels: Int64, state: _State, sums: Float32) -> None:
    """``sums[k] = sum_i q_ik x_i`` over the candidates of each label, x_i by its joint features."""
    pairs, start = question.pairs, question.start
    for k in range(len(labels)):
        own, first_pair, end_pair = sums[k], pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        state.targets[start[first_pair] : start[end_pair]] = _targets(question, labels[k], state.chance)
        for pair in range(first_pair, end_pair):
            for i in range(pairs.size[pair]):
                q = state.targets[start[pair] + i]
                if q > 0:
                    row = pairs.members[pairs.first[pair] + i]
                    for entry in range(X.indptr[row], X.indptr[row + 1]):
                        own[X.indices[entry]] += q * X.data[entry]


@numba.njit(cache=True, nogil=True, fastmath=True)  # sums in the order that the processor likes, always the same
def _score(X: JointRows, question: _Question, labels: Int64, weights: Float32, state: _State) -> None:
    """Fitted scores of the labels' candidates that are not out."""
    pairs, start = question.pairs, question.start
    for k in range(len(labels)):
        own = weights[k]
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                if state.chance[start[pair] + i] > 0:
                    row = pairs.members[pairs.first[pair] + i]
                    state.scores[start[pair] + i] = _dot(X, X.indptr[row], X.indptr[row + 1], own)


@numba.njit(cache=True, nogil=True, fastmath=True)
def _dot(X: JointRows, entry: int, end: int, weights: Float32) -> np.float32:
    """Inner product of some entries with weights; four sums side by side, for one would wait for itself."""
    a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    while entry + 3 < end:
        a += X.data[entry] * weights[X.indices[entry]]
        b += X.data[entry + 1] * weights[X.indices[entry + 1]]
        c += X.data[entry + 2] * weights[X.indices[entry + 2]]
        d += X.data[entry + 3] * weights[X.indices[entry + 3]]
        entry += 4
    while entry < end:
        a += X.data[entry] * weights[X.indices[entry]]
        entry += 1
    return a + b + c + d


@numba.njit(cache=True, nogil=True)
def _follow(question: _Question, labels: Int64, state: _State, drift: Float32) -> None:
    """Add to ``drift[k] = sum_i z_i (change of q_ik)`` what changed since the last time, z_i the sketches."""
    pairs, start = question.pairs, question.start
    for k in range(len(labels)):
        first_pair, end_pair = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        targets, own = _targets(question, labels[k], state.chance), drift[k]
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
def _targets(question: _Question, label: int, chance: Float32) -> Float32:
    """What each candidate counts for in the regression: its chance, but once where it is so through several groups.

    Such a row gets the best of its chances in all of them (in place), and counts where it comes first.
    """
    pairs = question.pairs
    first, end = question.start[pairs.of_label[label]], question.start[pairs.of_label[label + 1]]
    targets = chance[first:end].copy()
    if not question.overlap:
        return targets
    rows = np.empty(end - first, np.int32)
    for pair in range(pairs.of_label[label], pairs.of_label[label + 1]):
        place = question.start[pair] - first
        rows[place : place + pairs.size[pair]] = pairs.members[pairs.first[pair] : pairs.first[pair] + pairs.size[pair]]
    order = np.argsort(rows, kind="mergesort")
    begin = 0
    while begin < len(order):
        stop, best = begin, np.float32(0.0)
        while stop < len(order) and rows[order[stop]] == rows[order[begin]]:
            best = max(best, targets[order[stop]])
            stop += 1
        for position in range(begin, stop):
            targets[order[position]] = best if position == begin else np.float32(0.0)
            chance[first + order[position]] = best
        begin = stop
    return targets


@numba.njit(cache=True, nogil=True)
def _reassign_labels(
    system: RidgeSystem, question: _Question, labels: Int64, drift: Float32, state: _State
) -> tuple[Float64, Float64]:
    """New chances (in place) by the present scores; returns how much of each label moved, and its sum of chances.

    Where the carriers score nothing the features say nothing about the label, and its chances stay.
    """
    pairs, start, chance = question.pairs, question.start, state.chance
    moved, mass = np.zeros(len(labels)), np.zeros(len(labels))
    scratch = np.zeros(len(system.rest.scale), np.float32)
    for k in range(len(labels)):
        first_pair, end_pair = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        first = start[first_pair]
        scores = _fitted(question, labels[k], drift[k], state)
        if len(scratch):
            _add_rest(system.rest, question, labels[k], chance, scores, scratch)
        for pair in range(first_pair, end_pair):
            _leave_out(question, pair, chance[start[pair] : start[pair + 1]], scores[start[pair] - first :])
        scale = _scale(question, labels[k], scores, chance)
        if scale > 1e-9:
            mass[k] = np.sum(chance[first : start[end_pair]])
            for pair in range(first_pair, end_pair):
                own = scores[start[pair] - first : start[pair + 1] - first]
                moved[k] += _condition(question, pair, own, scale, chance[start[pair] : start[pair + 1]])
    return moved, mass


@numba.njit(cache=True, nogil=True, fastmath=True)
def _fitted(question: _Question, label: int, drift: Float32, state: _State) -> Float32:
    """Fitted scores of a label's candidates by the joint features; 0 for those that are out."""
    pairs, start = question.pairs, question.start
    first = start[pairs.of_label[label]]
    scores = np.zeros(start[pairs.of_label[label + 1]] - first, np.float32)
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
    return scores


@numba.njit(cache=True, nogil=True)
def _add_rest(rest: Rest, question: _Question, label: int, chance: Float32, scores: Float32, scratch: Float32) -> None:
    """Add what the features beyond the joint ones contribute; `scratch` (d - h,) is zero before and after."""
    X, pairs, start = rest.X, question.pairs, question.start
    first = start[pairs.of_label[label]]
    targets = _targets(question, label, chance)
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
def _leave_out(question: _Question, pair: int, chance: Float32, scores: Float32) -> None:
    """Turn a pair's fitted scores (in place) into those of a regression that had no targets in their fold."""
    folds, place = question.folds, question.folds.first[question.pairs.group[pair]]
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
def _scale(question: _Question, label: int, scores: Float32, chance: Float32) -> np.float64:
    """Mean score of the label's carriers.

    Chances that may add up to anything must not set their own scale: where counts are not known, the best member of
    each pair does.
    """
    pairs, start = question.pairs, question.start
    first_pair, end_pair = pairs.of_label[label], pairs.of_label[label + 1]
    first, total, count = start[first_pair], np.float64(0.0), np.float64(0.0)
    if question.known:
        for i in range(len(scores)):
            total += chance[first + i] * scores[i]
            count += chance[first + i]
    else:
        for pair in range(first_pair, end_pair):
            total += np.max(scores[start[pair] - first : start[pair + 1] - first])
            count += 1.0
    return total / count


@numba.njit(cache=True, nogil=True)
def _condition(question: _Question, pair: int, scores: Float32, scale: np.float64, chance: Float32) -> float:
    """New chances of a pair's candidates (in place), given the group's count; returns the moved mass."""
    carriers = question.pairs.carriers[pair]
    within = np.flatnonzero(chance > 0)
    log_odds, posterior = np.empty(len(within)), np.empty(len(within))
    for i in range(len(within)):
        ratio = scores[within[i]] / scale
        log_odds[i] = _SHARPNESS * np.log(ratio) if ratio > _FLOOR else _LEAST
    if question.known:
        given_count(log_odds, carriers, posterior)
    else:
        given_some(log_odds, posterior)
    least = _OUT * carriers / len(chance) if question.known else 0.0
    moved = 0.0
    for i in range(len(within)):
        new = posterior[i] if posterior[i] >= least else 0.0
        moved += abs(new - chance[within[i]])
        chance[within[i]] = new
    return moved


def _best_members(pairs: Pairs, start: Int64, chance: Float32, known: bool) -> tuple[Int64, Int64, Float32]:
    """Rows, labels and confidences of the members that each pair's count allows, the likeliest first."""
    count = pairs.carriers
    if not known:
        expected = np.add.reduceat(np.append(chance.astype(np.float64), 0.0), start[:-1])
        count = np.clip(np.rint(expected).astype(np.int64), 1, pairs.size)
    slots = np.concatenate([[0], np.cumsum(count)])
    chosen = np.empty(slots[-1], np.int64)
    over_blocks(
        lambda block: _choose(start, slots, block.start, block.stop, chance, chosen), even_blocks(pairs.size, 64)
    )
    pair = np.repeat(np.arange(len(count)), count)
    rows = pairs.members[pairs.first[pair] + chosen - start[pair]].astype(np.int64)
    return rows, pairs.label_of_pair()[pair], np.clip(chance[chosen], np.float32(1e-6), np.float32(1))


@numba.njit(cache=True, nogil=True)
def _choose(start: Int64, slots: Int64, first: int, end: int, chance: Float32, chosen: Int64) -> None:
    """Positions of the best candidates of each pair; the first of several that are tied."""
    for pair in range(first, end):
        own = chance[start[pair] : start[pair + 1]]
        if slots[pair + 1] - slots[pair] == 1:
            chosen[slots[pair]] = start[pair] + np.argmax(own)
            continue
        order = np.argsort(-own, kind="mergesort")
        for rank in range(slots[pair + 1] - slots[pair]):
            chosen[slots[pair] + rank] = start[pair] + order[rank]
