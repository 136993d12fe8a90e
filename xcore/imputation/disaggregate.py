"""Our own imputer: one discriminative model of all labels and the posterior of who carries what, fitted in turns."""

from __future__ import annotations

from typing import Literal

import numba
import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.grouping import Groups
from xcore.imputation.base import Imputed, Imputer, Pairs, rows_and_labels
from xcore.imputation.calibration import Calibration
from xcore.imputation.posterior import given_count, given_some
from xcore.imputation.ridge import FOLD, LeftOut, RidgeSystem, left_out, ridge_system
from xcore.kernels import even_blocks, over_blocks, single_threaded_blas
from xcore.matrices import CSR, Float32, Float64, Int64, normalise_rows

_BLOCK_FLOATS = 16_000_000
_FLOOR = 0.05


class Disaggregate(Imputer):
    """Discriminative disaggregation: which members explain their group's labels, judged against all other groups.

    Two steps in turns, from a uniform start:

    1. Ridge regression of all labels on the features, ``W = (X'X + mu I)^-1 X'Q``, where Q holds the chances q that a
       row carries a label: 0 in all groups without it, so that negative groups speak too. One factorisation serves
       all labels and rounds.
    2. Within each (group, label) pair, new q from the scores that the members would get from a regression without their
       group (`LeftOut`; else a group of similar members confirms whatever it was given first). The odds of a member
       are ``max(s / mean s of carriers, 0.05)^2``, conditioned exactly on the group's count (`given_count`), or on
       "at least one" where counts are not known.

    At the end the scores are calibrated (`Calibration`), and the `count` best members of each pair become positives
    with their calibrated chance as confidence.

    Cost O(h nnz(X) + h^3) once, then O(nnz of the candidates + L h^2) a round, with h = min(d, `joint_features`);
    memory O(nnz(X) + candidates + h^2 + n g) and a block of labels for each thread. Features beyond the h of most
    energy count as uncorrelated with all others.
    """

    kind: Literal["disaggregate"] = "disaggregate"
    rounds: int = Field(5, ge=1, le=100, description="Turns of regression and reassignment.")
    penalty: float = Field(3.0, gt=0, le=1e6, description="Ridge penalty (mu), in units of one row.")
    joint_features: int = Field(
        6000, ge=1, le=30_000, description="Features of most energy whose correlations are modelled; bounds memory."
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        pairs = Pairs.of(groups)
        total = self.rounds + 2
        grouped = np.unique(groups.members.indices)
        system = ridge_system(normalise_rows(X), grouped, self.penalty, self.joint_features)
        folds = left_out(system, groups)
        report(1, total)
        start = pairs.candidates()
        chance = np.repeat(_first_shares(pairs, groups), pairs.size).astype(np.float32)
        scores = np.zeros(len(chance), np.float32)
        blocks = _label_blocks(pairs, system.n_features)
        known = groups.merge == "list"
        for turn in range(self.rounds):
            with single_threaded_blas():
                over_blocks(lambda block: _turn(system, folds, pairs, block, start, known, chance, scores), blocks)
            report(turn + 2, total, {"sharpness": float(np.square(chance).sum() / max(chance.sum(), 1e-9))})
        calibration = Calibration.fit(pairs, start, scores, chance, known)
        confidence = calibration.chances(pairs, start, scores, known)
        rows, labels, kept = _best_members(pairs, start, confidence, known)
        report(total, total)
        Y = rows_and_labels(rows, labels, kept, (groups.n_rows, groups.n_labels))
        return Imputed(Y, {"mean_confidence": float(kept.mean()) if len(kept) else 0.0})


def _first_shares(pairs: Pairs, groups: Groups) -> Float64:
    """The share of each pair's members that carry the label; where counts are unknown, an estimate.

    A label in a share f of the groups, whose carriers are spread at random, has a rate r in a row with
    ``1 - (1 - r)^size = f``; a group that has it at all then has ``size r / f`` carriers.
    """
    if groups.merge == "list":
        return pairs.count / pairs.size
    n_groups = max(int((groups.sizes > 0).sum()), 1)
    of_groups = np.repeat(np.diff(pairs.of_label), np.diff(pairs.of_label)) / n_groups
    rate = 1.0 - np.power(np.maximum(1.0 - of_groups, 1e-3), 1.0 / pairs.size)
    return np.clip(rate / of_groups, 1.0 / pairs.size, 1.0)


def _label_blocks(pairs: Pairs, n_features: int) -> list[range]:
    """Runs of labels whose dense weights fit a block."""
    width = int(np.clip(_BLOCK_FLOATS // max(n_features, 1), 1, 256))
    return [range(start, min(start + width, pairs.n_labels)) for start in range(0, pairs.n_labels, width)]


def _turn(
    system: RidgeSystem,
    folds: LeftOut,
    pairs: Pairs,
    block: range,
    start: Int64,
    known: bool,
    chance: Float32,
    scores: Float32,
) -> None:
    """Regression and reassignment of a block of labels, in place."""
    used = np.array([k for k in block if pairs.of_label[k] < pairs.of_label[k + 1]], np.int64)
    sums = np.zeros((len(used), system.n_features), np.float32)
    _add_targets(system.X, pairs, used, start, chance, sums)
    weights = system.weights(sums)
    _score(system.X, folds, pairs, used, start, weights, chance, scores)
    _reassign(pairs, used, start, known, scores, chance)


@numba.njit(cache=True, nogil=True)
def _add_targets(X, pairs, labels, start, chance, sums):
    """``sums[k] = sum_i q_ik x_i``. A row that is a candidate through several groups counts once, with its best q."""
    best = np.zeros(len(X.indptr) - 1, np.float32)
    for k in range(len(labels)):
        first, end = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                row = pairs.members[pairs.first[pair] + i]
                best[row] = max(best[row], chance[start[pair] + i])
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                row = pairs.members[pairs.first[pair] + i]
                if best[row] > 0:
                    for entry in range(X.indptr[row], X.indptr[row + 1]):
                        sums[k, X.indices[entry]] += best[row] * X.data[entry]
                    chance[start[pair] + i] = best[row]
                    best[row] = -best[row]
                elif best[row] < 0:
                    chance[start[pair] + i] = -best[row]
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                best[pairs.members[pairs.first[pair] + i]] = 0.0


@numba.njit(cache=True, nogil=True)
def _score(X, folds, pairs, labels, start, weights, chance, scores):
    """Scores of all candidates as if the targets of their fold had not been in the regression."""
    for k in range(len(labels)):
        w = weights[k]
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            size = pairs.size[pair]
            target = chance[start[pair] : start[pair] + size].astype(np.float64)
            excess = np.empty(size)
            for i in range(size):
                row, dot = pairs.members[pairs.first[pair] + i], 0.0
                for entry in range(X.indptr[row], X.indptr[row + 1]):
                    dot += X.data[entry] * w[X.indices[entry]]
                excess[i] = dot - target[i]
            place = folds.first[pairs.group[pair]]
            for first in range(0, size, FOLD):
                end = min(first + FOLD, size)
                for i in range(first, end):
                    total = target[i]
                    for j in range(first, end):
                        total += folds.matrices[place] * excess[j]
                        place += 1
                    scores[start[pair] + i] = total


@numba.njit(cache=True, nogil=True)
def _reassign(pairs, labels, start, known, scores, chance):
    """New chances of all candidates from their scores; a label whose carriers score nothing keeps its chances."""
    for label in labels:
        first, end = pairs.of_label[label], pairs.of_label[label + 1]
        carried, mass = 0.0, 0.0
        for c in range(start[first], start[end]):
            carried += chance[c] * scores[c]
            mass += chance[c]
        if carried <= 1e-9 * mass:
            continue
        scale = mass / carried
        for pair in range(first, end):
            log_odds, posterior = np.empty(pairs.size[pair]), np.empty(pairs.size[pair])
            for i in range(pairs.size[pair]):
                log_odds[i] = 2.0 * np.log(max(scores[start[pair] + i] * scale, _FLOOR))
            if known:
                given_count(log_odds, pairs.count[pair], posterior)
            else:
                given_some(log_odds, posterior)
            chance[start[pair] : start[pair + 1]] = posterior


def _best_members(
    pairs: Pairs, start: Int64, confidence: Float32, known: bool
) -> tuple[Int64, Int64, Float32]:
    """Rows, labels and confidences of the members that each pair's count allows, the likeliest first."""
    expected = np.add.reduceat(np.append(confidence.astype(np.float64), 0.0), start[:-1])
    count = pairs.count if known else np.clip(np.rint(expected).astype(np.int64), 1, pairs.size)
    slots = np.concatenate([[0], np.cumsum(count)])
    chosen = np.empty(slots[-1], np.int64)
    blocks = even_blocks(pairs.size, 64)
    over_blocks(lambda block: _choose(start, slots, block.start, block.stop, confidence, chosen), blocks)
    pair = np.repeat(np.arange(len(count)), count)
    rows = pairs.members[pairs.first[pair] + chosen - start[pair]].astype(np.int64)
    return rows, pairs.label_of_pair()[pair], np.clip(confidence[chosen], np.float32(1e-6), 1)


@numba.njit(cache=True, nogil=True)
def _choose(start, slots, first, end, confidence, chosen):
    """Positions of the best candidates of each pair; the first of several that are tied."""
    for pair in range(first, end):
        order = np.argsort(-confidence[start[pair] : start[pair + 1]], kind="mergesort")
        for rank in range(slots[pair + 1] - slots[pair]):
            chosen[slots[pair] + rank] = start[pair] + order[rank]
