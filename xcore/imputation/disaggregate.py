"""Our own imputer: a discriminative model of all labels, and the posterior of who carries what, fitted in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from xcore.components import Report, silent
from xcore.grouping.groups import Groups
from xcore.imputation.assignment import chosen_candidates, report_chances
from xcore.imputation.base import Imputer, Pairs, rows_and_labels, rows_by_group
from xcore.imputation.candidates import Candidates, State
from xcore.imputation.column_products import PANEL
from xcore.imputation.first_pass import first_scores
from xcore.imputation.imputed import Imputed
from xcore.imputation.penalty import ROWS_NEED_MORE, penalty_of
from xcore.imputation.random_features import random_features
from xcore.imputation.regression import regress, score
from xcore.imputation.rehearsal import Sharpness, Start, rehearse
from xcore.imputation.ridge import RidgeSystem, left_out, ridge_system, sketch_rows, with_intercept
from xcore.imputation.sums import SCALINGS, SumRegression, can_sum, counts_of, leave_out_groups
from xcore.imputation.turn import Question, condition_labels, follow, reassign_labels
from xcore.numeric.matrices import CSR, Float32, Float64, Int64, normalise_rows
from xcore.numeric.parallel import over_blocks, single_threaded_blas

_BLOCK_FLOATS = 16_000_000
_MOST_LABELS = 512  # of a block: enough to solve at the processor's full speed
_SETTLED = 0.05
_FEW_CARRIERS = 5
_FEW_GROUPS = 1024
_ERROR = 0.0075  # of a score, which sketched changes may cause


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
       member are ``s^b``, s at least 0.05 of the mean score of the label's carriers, conditioned exactly on the group's
       count (`given_count`). Where counts are not known, they are estimated from the scores: as chances of
       independent members, given that at least one member carries the label (`mean_given_some`, `given_mean`).

    Left-out groups choose the penalty (`penalty_of`), the start, the exponent b of each turn and the exponent of the
    reported confidences (`rehearse`), which have the odds ``(s / (1 - s))^b``: where features say little, chances stay
    near the group's share by themselves.

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
        "auto",
        description="soft: every member with a chance of at least 1 % gets the label, with its chance as confidence. "
        "hard: only as many members as the group counts, the likeliest first. auto: hard where counts are known, soft "
        "where only sets are known.",
    )
    start: Literal["auto", "shares", "sums"] = Field(
        "auto",
        description="Chances before the first round. shares: the same for all members of a group. sums: by a "
        "regression of the groups' counts on the sums of their members' features; for groups with counts that do not "
        "overlap, 2048 at most (else shares). auto: chosen by held-out groups.",
    )
    random_features: int = Field(
        0,
        ge=0,
        le=30_000,
        description="Number of random features (cosines) in place of the rows' own, for labels that are not linear in "
        "the features, as in images. Time grows with its square, memory with this number for each row. 0: the rows' "
        "own features.",
    )
    joint_features: int = Field(
        6000,
        ge=1,
        le=30_000,
        description="Number of features for which correlations are modelled; those with the largest sum of "
        "squares are taken. Memory grows with the square of this number.",
    )

    def impute_each(self, X: CSR, groups: Groups, rng: np.random.Generator) -> list[tuple[Imputer, Imputed]]:
        """With ``assign: auto`` both assignments, from the same turns; the one that it would take stands last."""
        if self.assign != "auto":
            return super().impute_each(X, groups, rng)
        settings = [self.model_copy(update={"assign": assign}) for assign in ("soft", "hard")]
        if self._is_soft(groups):
            settings.reverse()
        found: list[_Answered] = []

        def impute(one: Disaggregate) -> Callable[[Groups], Imputed]:
            def assigned(unknown: Groups) -> Imputed:
                if not found:
                    found.append(one._answered(X, unknown, rng, silent))
                return one._assigned(found[0])

            return assigned

        return [(one, one._checked(X, groups, impute(one))) for one in settings]

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        return self._assigned(self._answered(X, groups, rng, report))

    def _answered(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> _Answered:
        """The chances of all candidates when the turns are over."""
        X, groups, original = rows_by_group(X, groups)
        pairs, known = Pairs.of(groups), groups.merge == "list"
        candidates = Candidates.of(pairs)
        X = normalise_rows(random_features(X, self.random_features, rng) if self.random_features else X)
        penalty = self.penalty or penalty_of(X, groups)
        system = ridge_system(with_intercept(X), np.unique(groups.members.indices), penalty, self.joint_features)
        sketch = sketch_rows(system)
        folds = left_out(system.rest, sketch, groups)
        by_sums = penalty / ROWS_NEED_MORE
        sharpness = rehearse(system, sketch, folds, groups, self.rounds, self._starts(groups), by_sums)
        sums = SumRegression.of(system, groups, by_sums) if sharpness.start == "sums" else None
        question = Question(candidates, sketch, folds, known, _reach(system, sketch), sharpness.turns)
        state = State.of(np.repeat(_first_shares(pairs, groups), pairs.size).astype(np.float32))
        chance, blocks = state.chance, _blocks(system, candidates, state.chance)
        done = 0

        def answer(block: _Block) -> int:
            nonlocal done
            if sums:
                _start_from_sums(system, sums, question, block.labels, state)
            label_rounds = self._answer(system, question, block, state, begun)
            done += candidates.n_of(block.labels)
            report(done, len(chance))
            return label_rounds

        with single_threaded_blas():
            begun = groups.n_groups <= _FEW_GROUPS and not candidates.overlap and not sums
            if begun:
                first_scores(system, pairs, candidates.start, chance, state.scores)
                state.targets[:] = chance
            label_rounds = sum(over_blocks(answer, blocks))
        report_chances(pairs, candidates.start, state, known, sharpness.reported)
        n_used = int((np.diff(pairs.of_label) > 0).sum())
        return _Answered(groups, candidates, chance, original, sharpness, penalty, label_rounds / max(n_used, 1))

    def _assigned(self, answered: _Answered) -> Imputed:
        groups, (pairs, start, _), chance, original, sharpness, penalty, mean_rounds = answered
        soft = self._is_soft(groups)
        chosen, pair = chosen_candidates(pairs, start, chance, groups.merge == "list", soft)
        rows = pairs.members[pairs.first[pair] + chosen - start[pair]].astype(np.int64)
        confidence = np.clip(chance[chosen], np.float32(1e-6), np.float32(1))
        Y = rows_and_labels(original[rows], pairs.label_of_pair()[pair], confidence, (groups.n_rows, groups.n_labels))
        details = {
            "mean_confidence": float(confidence.mean(dtype=np.float64)) if len(confidence) else 0.0,
            "mean_rounds": mean_rounds,
            "assignment": "soft" if soft else "hard",
            "start": sharpness.start,
            "penalty": penalty,
            "sharpness": sharpness.reported,
            "held_out": sharpness.held_out,
        }
        return Imputed(Y, details, reading="target" if soft else "weight")

    def _is_soft(self, groups: Groups) -> bool:
        """An estimated count is often too low, and would leave carriers out; soft chances leave all of them in."""
        return groups.merge == "set" if self.assign == "auto" else self.assign == "soft"

    def _starts(self, groups: Groups) -> tuple[Start, ...]:
        if self.start == "shares" or not can_sum(groups):
            return ("shares",)
        return ("sums",) if self.start == "sums" else ("shares", "sums")

    def _answer(self, system: RidgeSystem, question: Question, block: _Block, state: State, begun: bool) -> int:
        """Alternate regression and reassignment until a block's chances converge; returns labels x rounds."""
        active, label_rounds = block.labels, 0
        drift = np.zeros((len(active), question.sketch.shape[1]), np.float32)
        drifted = np.full(len(active), 0.0 if begun or block.sketched else np.inf)
        for turn in range(self.rounds):
            if turn or not begun:
                far = (drifted > question.reach) & (not block.sketched)
                drift[far], drifted[far] = 0.0, 0.0
                regress(system, question.candidates, active[far], state)
                follow(question, active, state, drift)
            moved, mass = reassign_labels(system, question, active, turn, drift, state)
            label_rounds += len(active)
            on = moved > _SETTLED * mass
            active, drift, drifted = active[on], drift[on], (drifted + moved)[on]
            if not len(active):
                break
        return label_rounds


def _start_from_sums(system: RidgeSystem, sums: SumRegression, question: Question, labels: Int64, state: State) -> None:
    """First chances (in place) of some labels' candidates, by a regression of the groups' counts on their sums."""
    candidates = question.candidates
    weights, dual = sums.fit(counts_of(candidates, labels, len(sums.sums)))
    score(system, candidates, labels, weights, state)
    leave_out_groups(sums, candidates, labels, dual, state)
    begins = candidates.start[candidates.pairs.of_label[labels]]
    for _ in range(SCALINGS):
        condition_labels(question._replace(sharpness=np.ones(1)), labels, 0, state.scores, begins, state)
    for label in labels:
        own = candidates.pairs.of_label[label : label + 2]
        state.scores[candidates.start[own[0]] : candidates.start[own[1]]] = 0.0


class _Answered(NamedTuple):
    """What the turns found: chances of the candidates, over rows in the order of their groups."""

    groups: Groups
    candidates: Candidates
    chance: Float32
    original: Int64
    sharpness: Sharpness
    penalty: float
    mean_rounds: float


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
