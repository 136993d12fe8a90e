"""A rehearsal of our imputer with some labels and some groups held out, to choose how sharp the real run should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.grouping.groups import Groups
from xcore.imputation.column_products import PANEL, add_weighted
from xcore.imputation.pooling import Halves, Pooled, only_group, pool
from xcore.imputation.posterior import given_count, given_mean, mean_given_some
from xcore.imputation.ridge import FOLD, LeftOut, RidgeSystem, project_rows, scores_of_rest
from xcore.imputation.sharpness import (
    FLOOR,
    Judged,
    best_sharpness,
    likeliest,
    log_odds_of,
    ranking,
)
from xcore.imputation.sums import SCALINGS, SumRegression
from xcore.numeric import cholesky
from xcore.numeric.matrices import Float32, Float64, Int32, Int64
from xcore.numeric.parallel import single_threaded_blas

_LABELS = PANEL
_HELD_SHARE = 0.2
_MOST_ROWS = 4096
_FIRST_TURNS, _LEAST_AT_FIRST = 2, 2.0
_MOST_WITHOUT_COUNTS = 2.2

Start = Literal["shares", "sums"]


class Sharpness(NamedTuple):
    """What a rehearsal found.

    Attributes
    ----------
    turns : float64 (rounds,)
        Exponent of the odds in each turn.
    reported : the exponent of the odds with which chances best explain the labels of held-out groups.
    held_out : what held-out groups say about the imputation, for the report.
    start : from which chances the turns should start.
    """

    turns: Float64
    reported: float
    held_out: dict[str, float]
    start: Start


def rehearse(
    system: RidgeSystem,
    sketch: Float32,
    folds: LeftOut,
    groups: Groups,
    rounds: int,
    starts: Sequence[Start] = ("shares",),
    penalty: float = 1.0,
) -> Sharpness:
    """Alternate regression and reassignment for 32 labels, without a fifth of the groups (4,096 rows at most).

    In each turn the exponent is the one with which the scores that groups get without themselves best explain their
    own labels. That is too sharp: each group has had a hand in the chances of all others. Groups that were held out in
    all turns have not.

    Confidences are reported with the exponent of the least squared error. It is measured by the held-out groups, and
    by another fifth of the groups that took part pooled in pairs. Of a pooled pair it is known which half has a label
    (`xcore.imputation.pooling`). Both measures err on the sharp side, and the lower exponent is taken.

    The first two turns have an exponent of at least 2, because scores fitted to equal shares underrate the differences.
    Without counts no turn has more than 2.2: the counts are estimated from the scores, and sharp chances and high
    counts would confirm each other.

    With several `starts` the rehearsal is repeated from each, and the held-out groups choose (`_better_start`).

    Rows of held-out groups have their own predictions as targets. A regression with such targets is the one without
    these rows, so the factor of all rows serves here too. Cost O(32 (nnz(X) + n g + h^2)) per turn; memory O(32 n).
    """
    pooled = pool(groups, _to_pool(groups))
    folds = pooled.folds(folds, system.rest, sketch)
    stage = _Stage.of(pooled)
    with single_threaded_blas():
        firsts = {
            start: stage.shares() if start == "shares" else stage.sums(system, pooled.groups, penalty)
            for start in starts
        }
        takes = {start: _take(stage, system, folds, first, rounds) for start, first in firsts.items()}
    start, told = _better_start(takes)
    take = takes[start]
    held = stage.reported(take.held)
    reported = _least_error(held)
    if len(pooled.halves):
        reported = min(reported, _least_error(stage.halves(pooled, groups, take.seen)))
    right, ranking_error = ranking(held, reported)
    told |= {"groups": float(stage.held.sum()), "ranking": right, "ranking_error": ranking_error}
    return Sharpness(take.turns, reported, told, start)


class _Take(NamedTuple):
    """One rehearsal: exponents, the evidence of the last turn, and the held-out groups after it."""

    turns: Float64
    seen: Float32
    held: Judged


def _take(stage: _Stage, system: RidgeSystem, folds: LeftOut, targets: Float32, rounds: int) -> _Take:
    turns, seen = np.empty(rounds), np.empty((0, 0), np.float32)
    heard, held = stage.some(~stage.held), np.flatnonzero(stage.held)
    for turn in range(rounds):
        seen = stage.evidence(system, folds, targets)
        judged = stage.judged(heard, seen)
        found = max(likeliest(judged), _LEAST_AT_FIRST if turn < _FIRST_TURNS else 0.0)
        turns[turn] = found if stage.known else min(found, _MOST_WITHOUT_COUNTS)
        _reassign(stage, seen, turns[turn], judged.prior(turns[turn]), targets)
    return _Take(turns, seen, stage.judged(held, stage.evidence(system, folds, targets)))


def _least_error(judged: Judged | Halves) -> float:
    return best_sharpness(lambda sharpness: -judged.squared_error(sharpness))


def _lead(one: Judged, other: Judged) -> tuple[float, float]:
    """By how much the first explains held-out groups better (log likelihood), and the standard error of this."""
    gain = one.likelihood(likeliest(one)) - other.likelihood(likeliest(other))
    return float(gain.sum()), float(np.sqrt(np.sum(gain**2)))


def _better_start(takes: Mapping[Start, _Take]) -> tuple[Start, dict[str, float]]:
    """The start that explains held-out groups better, and by how much, with the standard error of this."""
    if len(takes) == 1:
        return next(iter(takes)), {}
    lead, error = _lead(takes["sums"].held, takes["shares"].held)
    return "sums" if lead > 0 else "shares", {"lead_of_sums": lead, "lead_of_sums_error": error}


class _Stage(NamedTuple):
    """The members of all groups one after the other, the counts of the sampled labels, and which groups are held out.

    Attributes
    ----------
    first : int64 (groups + 1,)
    members : int32 (members,)
    counts : float64 (groups, labels)
    held : bool (groups,)
    known : whether counts are known.
    n_rows : of the data.
    """

    first: Int64
    members: Int32
    counts: Float64
    held: npt.NDArray[np.bool_]
    known: bool
    n_rows: int

    @classmethod
    def of(cls, pooled: Pooled) -> _Stage:
        groups, held = pooled.groups, np.zeros(pooled.groups.n_groups, bool)
        held[_drawn(groups.sizes[: len(pooled.stayed)], _part_of(groups))] = True
        counts = np.minimum(groups.labels[:, _some_labels(groups)].toarray(), groups.sizes[:, None])
        return cls(
            groups.members.indptr.astype(np.int64),
            np.ascontiguousarray(groups.members.indices, np.int32),
            counts.astype(np.float64),
            held,
            groups.merge == "list",
            groups.n_rows,
        )

    def some(self, wanted: npt.NDArray[np.bool_]) -> Int64:
        """Some of these groups, with 4,096 rows at most."""
        return _drawn(np.where(wanted, np.diff(self.first), 0), _MOST_ROWS)

    def judged(self, groups: Int64, evidence: Float32) -> Judged:
        parts = [np.arange(self.first[group], self.first[group + 1]) for group in groups]
        first = np.concatenate([[0], np.cumsum(np.diff(self.first)[groups])]).astype(np.int64)
        members = np.concatenate([np.zeros(0, np.int64), *parts])
        weights = np.ones(self.counts.shape[1])
        return Judged(first, np.ascontiguousarray(evidence[members]), self.counts[groups], self.known, weights)

    def halves(self, pooled: Pooled, groups: Groups, evidence: Float32) -> Halves:
        """The pooled groups with their evidence, apart and together."""
        together = self.judged(pooled.places, evidence)
        sizes = groups.sizes[pooled.halves]
        counts = groups.labels[pooled.halves][:, _some_labels(pooled.groups)].toarray().astype(np.float64)
        apart = together._replace(
            first=np.concatenate([[0], np.cumsum(sizes)]), counts=np.minimum(counts, sizes[:, None])
        )
        return Halves(self.reported(apart), self.reported(together))

    def reported(self, judged: Judged) -> Judged:
        """The same with the odds that are reported, where the sampled labels count as all labels would: common ones
        are drawn more often."""
        weights = 1.0 / np.sqrt(np.maximum(self.counts.sum(axis=0), 1.0))
        return judged._replace(evidence=log_odds_of(judged.evidence).astype(np.float32), weights=weights)

    def shares(self) -> Float32:
        """First targets (n, labels): the group's share, and the share of all members for held-out groups."""
        sizes = np.maximum(np.diff(self.first), 1)[:, None]
        share = self.counts / sizes
        seen = ~self.held & (np.diff(self.first) > 0)
        share[self.held] = self.counts[seen].sum(axis=0) / max(float(sizes[seen].sum()), 1.0)
        targets = np.zeros((self.n_rows, PANEL), np.float32)
        np.maximum.at(targets, self.members, self._wide(share[np.repeat(np.arange(len(share)), np.diff(self.first))]))
        return targets

    def sums(self, system: RidgeSystem, groups: Groups, penalty: float) -> Float32:
        """First targets (n, labels): chances by a regression of counts on sums, without the held-out groups."""
        heard = np.flatnonzero(~self.held)
        regression = SumRegression.of(system, groups.take(heard), penalty)
        weights, dual = regression.fit(self.counts[heard])
        members = self.members.astype(np.int64)
        scores = self._wide(regression.without_own_group(project_rows(system.X, weights)[members], dual, members))
        targets, held = self.shares(), self.members[np.repeat(self.held, np.diff(self.first))]
        for _ in range(SCALINGS):
            targets[held] = scores[np.repeat(self.held, np.diff(self.first))]
            _reassign(self, self.logs(scores, targets), 1.0, np.zeros(self.counts.shape[1]), targets)
        return targets

    def _wide(self, columns: Float64 | Float32) -> Float32:
        wide = np.zeros((len(columns), PANEL), np.float32)
        wide[:, : columns.shape[1]] = columns
        return wide

    def evidence(self, system: RidgeSystem, folds: LeftOut, targets: Float32) -> Float32:
        """Log scores (members, labels) without the own group.

        Also gives the rows of held-out groups (in place) their own predictions as targets: the fitted scores. Repeated,
        these approach the regression without such rows whatever the groups, for a hat matrix has no eigenvalue above 1.
        Scores without the own group would do so faster, but swing ever wider where groups hold similar rows.
        """
        sums = np.zeros((system.n_joint, PANEL), np.float32)
        add_weighted(system.X, targets.any(axis=1), targets, sums)
        weights = np.ascontiguousarray(sums.T)
        cholesky.solve(system.factor, weights)
        fitted = project_rows(system.X, weights)
        if len(system.rest.scale):
            fitted += scores_of_rest(system.rest, targets)
        scores = np.empty((len(self.members), PANEL), np.float32)
        _leave_out(self, folds, targets, fitted, scores)
        held = self.members[np.repeat(self.held, np.diff(self.first))]
        evidence = self.logs(scores, targets)
        targets[held] = fitted[held]
        return evidence

    def logs(self, scores: Float32, targets: Float32) -> Float32:
        """Log scores; low ones count as a share of the mean score of the label's carriers."""
        own = np.repeat(~self.held, np.diff(self.first))
        mass = targets[self.members[own]].astype(np.float64)
        carriers = (mass * scores[own]).sum(axis=0) / np.maximum(mass.sum(axis=0), 1e-12)
        least = np.float32(FLOOR) * np.maximum(carriers, 1e-6)[: self.counts.shape[1]].astype(np.float32)
        evidence: Float32 = np.log(np.maximum(scores[:, : len(least)], least))
        return evidence


def _to_pool(groups: Groups) -> Int64:
    """A fifth of the groups whose members are in no other group, in random order; too few groups are left alone."""
    sizes = np.where(only_group(groups), groups.sizes, 0)
    order = np.random.default_rng(1).permutation(np.flatnonzero(sizes > 0))
    return np.sort(order[np.cumsum(sizes[order]) <= _part_of(groups)])


def _part_of(groups: Groups) -> int:
    """Rows that are held out, or pooled."""
    return min(_MOST_ROWS, int(_HELD_SHARE * groups.sizes.sum()))


def _drawn(sizes: Int64, most_rows: int) -> Int64:
    """Some groups, drawn once and for all, with so many members together at most; at least one."""
    order = np.random.default_rng(0).permutation(np.flatnonzero(sizes > 0))
    fits = np.cumsum(sizes[order]) <= most_rows
    fits[:1] = True
    return np.sort(order[fits])


def _some_labels(groups: Groups) -> Int64:
    """Up to 32 labels, the commoner the likelier, drawn once and for all."""
    total = np.bincount(groups.labels.indices, groups.labels.data, groups.n_labels)
    used = np.flatnonzero(total)
    if len(used) <= _LABELS:
        return used
    weights = np.sqrt(total[used])
    return np.sort(np.random.default_rng(0).choice(used, _LABELS, replace=False, p=weights / weights.sum()))


@numba.njit(cache=True, nogil=True)
def _leave_out(stage: _Stage, folds: LeftOut, targets: Float32, fitted: Float32, scores: Float32) -> None:
    """Scores of all members by a regression without the targets of their own fold."""
    for group in range(len(stage.first) - 1):
        place = folds.first[group]
        for fold in range(stage.first[group], stage.first[group + 1], FOLD):
            end = min(fold + FOLD, stage.first[group + 1])
            own = np.empty((end - fold, targets.shape[1]), np.float32)
            excess = np.empty((end - fold, targets.shape[1]), np.float32)
            for i in range(end - fold):
                own[i] = targets[stage.members[fold + i]]
                excess[i] = fitted[stage.members[fold + i]] - own[i]
            matrix = folds.matrices[place : place + (end - fold) ** 2].reshape(end - fold, end - fold)
            scores[fold:end] = own + np.dot(matrix, excess)
            place += (end - fold) ** 2


@numba.njit(cache=True, nogil=True)
def _reassign(stage: _Stage, evidence: Float32, sharpness: float, prior: Float64, targets: Float32) -> None:
    """New targets (in place) of the members of groups that are not held out."""
    for group in range(len(stage.held)):
        if stage.held[group]:
            continue
        rows = stage.members[stage.first[group] : stage.first[group + 1]]
        log_odds, posterior, chances = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows), np.float32)
        for k in range(stage.counts.shape[1]):
            if stage.counts[group, k] == 0 or len(rows) == 0:
                continue
            for i in range(len(rows)):
                log_odds[i] = prior[k] + sharpness * evidence[stage.first[group] + i, k]
                chances[i] = 1.0 / (1.0 + np.exp(-log_odds[i]))
            if stage.known:
                given_count(log_odds, int(stage.counts[group, k]), posterior)
            else:
                given_mean(log_odds, mean_given_some(chances, 1.0), posterior)
            for i in range(len(rows)):
                targets[rows[i], k] = posterior[i]
