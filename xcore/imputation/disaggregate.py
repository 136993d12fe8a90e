"""Our own imputer: a discriminative model of all labels, and the posterior of who carries what, fitted in turns."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numba
import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.grouping.groups import Groups
from xcore.imputation.assignment import chosen_candidates, report_chances
from xcore.imputation.base import Imputer, Pairs, rows_and_labels, rows_by_group
from xcore.imputation.candidates import Candidates, State, targets_of
from xcore.imputation.column_products import PANEL
from xcore.imputation.first_pass import first_scores
from xcore.imputation.imputed import Imputed
from xcore.imputation.penalty import penalty_of
from xcore.imputation.posterior import given_count, given_mean, mean_given_some
from xcore.imputation.regression import regress
from xcore.imputation.rehearsal import rehearse
from xcore.imputation.ridge import FOLD, LeftOut, Rest, RidgeSystem, left_out, ridge_system, sketch_rows, with_intercept
from xcore.imputation.sharpness import FLOOR
from xcore.numeric.matrices import CSR, Float32, Float64, Int64, normalise_rows
from xcore.numeric.parallel import over_blocks, single_threaded_blas

_BLOCK_FLOATS = 16_000_000
_MOST_LABELS = 512  # of a block: enough to solve at the processor's full speed
_LOG_FLOOR = np.log(FLOOR)
_SETTLED = 0.05
_FEW_CARRIERS = 5
_FEW_GROUPS = 1024
_ERROR = 0.0075  # of a score, which sketched changes may cause
_STILL = 1e-3  # a change of a chance that sketches need not follow yet
_GROWTH_STEPS = 20
_OUT = 0.01  # of its first share: a candidate with a lower chance is dropped for good


class Disaggregate(Imputer):
    """Discriminative disaggregation: which members explain their group's labels, compared with all other groups.

    Two steps alternate, starting from uniform chances:

    1. Ridge regression of all labels on the features, ``W = (X'X + mu I)^-1 X'Q``, where Q holds the chances q that a
       row carries a label: 0 in all groups without it, so that negative groups count too. One factorisation serves
       all labels and rounds. At first all members of a pair have the same chance: where groups are few, one solution
       per group serves all labels (`first_scores`). Later a label is solved again when its chances have moved so far
       that `sketch_rows` would put scores off (`_reach`); smaller changes, and labels of at most 5 carriers, are
       followed by these sketches, which cost no solve.
    2. Within each (group, label) pair, new q from the scores s that the members would get from a regression without
       their group (`LeftOut`; else a group of similar members confirms whatever it was given first). The odds of a
       member are ``max(s / s_k, 0.05)^b``, s_k the mean score of the label's carriers, conditioned exactly on the
       group's count (`given_count`). Where counts are not known, they are estimated from the scores: as chances of
       independent members, given that at least one member carries the label (`mean_given_some`, `given_mean`).

    Left-out groups choose the penalty (`penalty_of`), the exponent b of each turn, the exponent of the reported
    confidences, and soft or hard assignment (`rehearse`): where features say little, chances stay near the group's
    share by themselves.

    A label is done when its chances move by less than 5 %. With hard assignment the `count` best members of each pair
    become positives (as many as are expected where counts are not known), and their q is the confidence; with soft
    assignment every member keeps its q.

    Cost O(h nnz(X) + h^3) once, then O(nnz of the candidates + h^2 labels to be solved) per round, with
    h = min(d, `joint_features`); memory O(nnz(X) + candidates + h^2 + n g) and a block of labels for each thread.
    Features beyond the h with the largest sums of squares count as uncorrelated with all others. Rows in no group are
    left out of the regression.
    """

    kind: Literal["disaggregate"] = "disaggregate"
    rounds: int = Field(
        5,
        ge=1,
        le=100,
        description="Maximum number of rounds. A round is one regression and one new assignment of the labels.",
    )
    penalty: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Ridge penalty (mu), relative to the squared length of one row. A larger penalty shrinks "
        "the weights more. Empty: chosen by left-out groups.",
    )
    assign: Literal["auto", "soft", "hard"] = Field(
        "hard",
        description="soft: every member with a chance of at least 1 % gets the label, with its chance as confidence. "
        "hard: only as many members as the group counts, the likeliest first. auto: chosen by held-out groups.",
    )
    joint_features: int = Field(
        6000,
        ge=1,
        le=30_000,
        description="Number of features for which correlations are modelled; those with the largest sum of "
        "squares are taken. Memory grows with the square of this number.",
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        X, groups, original = rows_by_group(X, groups)
        pairs, known = Pairs.of(groups), groups.merge == "list"
        X = normalise_rows(X)
        penalty = self.penalty or penalty_of(X, groups)
        system = ridge_system(with_intercept(X), np.unique(groups.members.indices), penalty, self.joint_features)
        sketch = sketch_rows(system)
        folds = left_out(system.rest, sketch, groups)
        sharpness = rehearse(system, sketch, folds, groups, self.rounds)
        candidates = Candidates.of(pairs)
        question = _Question(candidates, sketch, folds, known, _reach(system, sketch), sharpness.turns)
        state = State.of(np.repeat(_first_shares(pairs, groups), pairs.size).astype(np.float32))
        chance, blocks = state.chance, _blocks(system, candidates, state.chance)
        done = 0

        def answer(block: _Block) -> int:
            nonlocal done
            label_rounds = self._answer(system, question, block, state, begun)
            done += candidates.n_of(block.labels)
            report(done, len(chance))
            return label_rounds

        with single_threaded_blas():
            begun = groups.n_groups <= _FEW_GROUPS and not candidates.overlap
            if begun:
                first_scores(system, pairs, candidates.start, chance, state.scores)
                state.targets[:] = chance
            label_rounds = sum(over_blocks(answer, blocks))
        report_chances(pairs, candidates.start, state, known, sharpness.reported)
        soft = sharpness.soft if self.assign == "auto" else self.assign == "soft"
        chosen, pair = chosen_candidates(pairs, candidates.start, chance, known, soft)
        rows = pairs.members[pairs.first[pair] + chosen - candidates.start[pair]].astype(np.int64)
        confidence = np.clip(chance[chosen], np.float32(1e-6), np.float32(1))
        Y = rows_and_labels(original[rows], pairs.label_of_pair()[pair], confidence, (groups.n_rows, groups.n_labels))
        n_used = int((np.diff(pairs.of_label) > 0).sum())
        details = {
            "mean_confidence": float(confidence.mean(dtype=np.float64)) if len(confidence) else 0.0,
            "mean_rounds": label_rounds / max(n_used, 1),
            "assignment": "soft" if soft else "hard",
            "penalty": penalty,
            "sharpness": sharpness.reported,
            "held_out": sharpness.held_out,
        }
        return Imputed(Y, details, reading="target" if soft else "weight")

    def _answer(self, system: RidgeSystem, question: _Question, block: _Block, state: State, begun: bool) -> int:
        """Alternate regression and reassignment until a block's chances converge; returns labels x rounds."""
        active, label_rounds = block.labels, 0
        drift = np.zeros((len(active), question.sketch.shape[1]), np.float32)
        drifted = np.full(len(active), 0.0 if begun or block.sketched else np.inf)
        for turn in range(self.rounds):
            if turn or not begun:
                far = (drifted > question.reach) & (not block.sketched)
                drift[far], drifted[far] = 0.0, 0.0
                regress(system, question.candidates, active[far], state)
                _follow(question, active, state, drift)
            moved, mass = _reassign_labels(system, question, active, turn, drift, state)
            label_rounds += len(active)
            on = moved > _SETTLED * mass
            active, drift, drifted = active[on], drift[on], (drifted + moved)[on]
            if not len(active):
                break
        return label_rounds


class _Question(NamedTuple):
    """Who of the candidates carries what: how scores are made without the own fold, whether the groups' counts are
    known, how far chances may move before sketches do not suffice, and the exponent of the odds in each turn."""

    candidates: Candidates
    sketch: Float32
    folds: LeftOut
    known: bool
    reach: float
    sharpness: Float64


class _Block(NamedTuple):
    """Labels that are worked on together, and whether rows are compared by their sketches."""

    labels: Int64
    sketched: bool


def _blocks(system: RidgeSystem, candidates: Candidates, chance: Float32) -> list[_Block]:
    """Labels of few carriers are compared by sketches: the error, which grows with the root of their number, is small,
    and h^2 would be a high price. Their blocks are small too, to stay in the processor's cache.

    The others stand by their number of candidates, for `regress` takes those of many together, and are dealt out to
    large blocks, for which solving is cheapest, so that the work of all is about equal.
    """
    pairs, start, _ = candidates
    carriers = np.add.reduceat(np.append(chance, 0.0), start[pairs.of_label[:-1]]) * (np.diff(pairs.of_label) > 0)
    few = (carriers > 0) & (carriers <= _FEW_CARRIERS)
    many, rare = np.flatnonzero((carriers > 0) & ~few), np.flatnonzero(few)
    many = many[np.argsort(start[pairs.of_label[many]] - start[pairs.of_label[many + 1]], kind="stable")]
    width = int(np.clip(_BLOCK_FLOATS // max(system.n_joint, 1), 1, _MOST_LABELS))
    tile, n_blocks = np.arange(len(many)) // PANEL, -(-len(many) // width)
    return [
        *(_Block(many[tile % n_blocks == block], False) for block in range(n_blocks)),
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


@numba.njit(cache=True, nogil=True)
def _follow(question: _Question, labels: Int64, state: State, drift: Float32) -> None:
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
def _reassign_labels(
    system: RidgeSystem, question: _Question, labels: Int64, turn: int, drift: Float32, state: State
) -> tuple[Float64, Float64]:
    """New chances (in place) by the present scores; returns how much of each label moved, and its sum of chances.

    Where the carriers score nothing the features say nothing about the label, and its chances stay.
    """
    (pairs, start, _), chance = question.candidates, state.chance
    moved, mass = np.zeros(len(labels)), np.zeros(len(labels))
    scores, offset = _fitted_labels(system, question, labels, drift, state)
    _leave_out_labels(question, labels, chance, scores, offset)
    for k in range(len(labels)):
        first_pair, end_pair = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        first, fitted = start[first_pair], scores[offset[k] : offset[k + 1]]
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
    system: RidgeSystem, question: _Question, labels: Int64, drift: Float32, state: State
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
def _leave_out_labels(question: _Question, labels: Int64, chance: Float32, scores: Float32, offset: Int64) -> None:
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
def _fit(question: _Question, label: int, drift: Float32, state: State, scores: Float32) -> None:
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
def _add_rest(rest: Rest, question: _Question, label: int, chance: Float32, scores: Float32, scratch: Float32) -> None:
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
def _leave_out(question: _Question, pair: int, chance: Float32, scores: Float32) -> None:
    """Turn a pair's fitted scores (in place) into those of a regression that had no targets in their fold."""
    folds, place = question.folds, question.folds.first[question.candidates.pairs.group[pair]]
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
    question: _Question, pair: int, turn: int, scores: Float32, scale: float, growth: float, state: State
) -> float:
    """New chances of a pair's candidates (in place), given the group's count; returns the moved mass."""
    carriers, start = question.candidates.pairs.carriers[pair], question.candidates.start
    chance = state.chance[start[pair] : start[pair + 1]]
    evidence = state.evidence[start[pair] : start[pair + 1]]
    within = np.flatnonzero(chance > 0)
    log_odds, posterior = np.empty(len(within)), np.empty(len(within))
    for i in range(len(within)):
        ratio = scores[within[i]] / scale
        evidence[within[i]] = np.log(ratio) if ratio > FLOOR else _LOG_FLOOR
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
