"""Our own imputer: a discriminative model of all labels, and the posterior of who carries what, fitted in turns."""

from __future__ import annotations

from typing import Literal

import numba
import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.grouping import Groups
from xcore.imputation.base import Imputed, Imputer, Pairs, rows_and_labels
from xcore.imputation.posterior import given_count, given_some
from xcore.imputation.ridge import FOLD, LeftOut, RidgeSystem, left_out, ridge_system
from xcore.kernels import SparseRows, even_blocks, over_blocks, single_threaded_blas
from xcore.matrices import CSR, Float32, Float64, Int64, normalise_rows

_BLOCK_FLOATS = 16_000_000
_SHARPNESS = 2.5
_FLOOR = 0.05
_SETTLED = 0.01
_OUT = 0.01  # of its first share: a candidate whose chance falls below is out for good


class Disaggregate(Imputer):
    """Discriminative disaggregation: which members explain their group's labels, judged against all other groups.

    Two steps in turns, from a uniform start:

    1. Ridge regression of all labels on the features, ``W = (X'X + mu I)^-1 X'Q``, where Q holds the chances q that a
       row carries a label: 0 in all groups without it, so that negative groups speak too. One factorisation serves
       all labels and rounds.
    2. Within each (group, label) pair, new q from the scores s that the members would get from a regression without
       their group (`LeftOut`; else a group of similar members confirms whatever it was given first). The odds of a
       member are ``max(s / s_k, 0.05)^2.5``, s_k the mean score of the label's carriers, conditioned exactly on the
       group's count (`given_count`). Where counts are not known, s_k is the mean of the groups' best scores, and the
       condition is "at least one" (`given_some`).

    A label is done when its chances move by less than 1 %. The `count` best members of each pair become positives (as
    many as are expected where counts are not known), and their q is the confidence. The exponent was chosen once, on
    EURLEX57K, as the one whose confidences are right on average; the floor says how much a score near 0 can exclude.

    Cost O(h nnz(X) + h^3) once, then O(nnz of the candidates + L h^2) a round, with h = min(d, `joint_features`);
    memory O(nnz(X) + candidates + h^2 + n g) and a block of labels for each thread. Features beyond the h of most
    energy count as uncorrelated with all others. Rows in no group are left out of the regression.
    """

    kind: Literal["disaggregate"] = "disaggregate"
    rounds: int = Field(5, ge=1, le=100, description="Most turns of regression and reassignment.")
    penalty: float = Field(3.0, gt=0, le=1e6, description="Ridge penalty (mu), in units of one row.")
    joint_features: int = Field(
        6000, ge=1, le=30_000, description="Features of most energy whose correlations are modelled; bounds memory."
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        pairs, known = Pairs.of(groups), groups.merge == "list"
        system = ridge_system(normalise_rows(X), np.unique(groups.members.indices), self.penalty, self.joint_features)
        folds = left_out(system, groups)
        start = pairs.candidates()
        chance = np.repeat(_first_shares(pairs, groups), pairs.size).astype(np.float32)
        active = np.flatnonzero(np.diff(pairs.of_label))
        active_labels = []
        report(1, self.rounds + 1)
        for turn in range(self.rounds):
            active_labels.append(len(active))
            moved = _turn(system, folds, pairs, active, start, known, chance)
            active = active[moved > _SETTLED]
            report(turn + 2, self.rounds + 1, {"active_labels": float(len(active))})
        rows, labels, confidence = _best_members(pairs, start, chance, known)
        Y = rows_and_labels(rows, labels, confidence, (groups.n_rows, groups.n_labels))
        mean = float(confidence.mean(dtype=np.float64)) if len(confidence) else 0.0
        return Imputed(Y, {"mean_confidence": mean, "active_labels": active_labels})


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


def _turn(
    system: RidgeSystem, folds: LeftOut, pairs: Pairs, labels: Int64, start: Int64, known: bool, chance: Float32
) -> Float64:
    """Regression and reassignment of some labels, in place; returns by how much each moved, as a share of its mass."""
    width = int(np.clip(_BLOCK_FLOATS // max(system.n_features, 1), 1, 256))
    moved = np.zeros(len(labels))

    def turn(block: slice) -> None:
        own = labels[block]
        weights = np.zeros((len(own), system.n_features), np.float32)
        mass = _add_targets(system.X, pairs, own, start, chance, weights)
        weights, intercepts = system.weights(weights, mass)
        for position, label in enumerate(own):
            model = (weights[position], intercepts[position])
            scores = _scores(system.X, folds, pairs, label, start, model, chance)
            moved[block.start + position] = _reassign(pairs, label, start, known, scores, chance)

    with single_threaded_blas():
        over_blocks(turn, [slice(first, first + width) for first in range(0, len(labels), width)])
    return moved


@numba.njit(cache=True, nogil=True)
def _add_targets(X: SparseRows, pairs: Pairs, labels: Int64, start: Int64, chance: Float32, sums: Float32) -> Float64:
    """``sums[k] = sum_i q_ik x_i``, and returns ``sum_i q_ik``.

    A row that is a candidate through several groups counts once, with its best q.
    """
    best, mass = np.zeros(len(X.indptr) - 1, np.float32), np.zeros(len(labels))
    for k in range(len(labels)):
        first, end = pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                row = pairs.members[pairs.first[pair] + i]
                best[row] = max(best[row], chance[start[pair] + i])
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                row = pairs.members[pairs.first[pair] + i]
                q = best[row]
                if q > 0:
                    mass[k] += q
                    for entry in range(X.indptr[row], X.indptr[row + 1]):
                        sums[k, X.indices[entry]] += q * X.data[entry]
                # A negative mark says that the row has been added.
                best[row] = -abs(q)
                chance[start[pair] + i] = abs(q)
        for pair in range(first, end):
            for i in range(pairs.size[pair]):
                best[pairs.members[pairs.first[pair] + i]] = 0.0
    return mass


@numba.njit(cache=True, nogil=True, fastmath=True)  # sums in the order that the processor likes, always the same
def _dot(X: SparseRows, row: int, weights: Float32) -> np.float32:
    total = np.float32(0.0)
    for entry in range(X.indptr[row], X.indptr[row + 1]):
        total += X.data[entry] * weights[X.indices[entry]]
    return total


@numba.njit(cache=True, nogil=True)
def _scores(
    X: SparseRows,
    folds: LeftOut,
    pairs: Pairs,
    label: int,
    start: Int64,
    model: tuple[Float32, float],
    chance: Float32,
) -> Float64:
    """Scores of a label's candidates as if the targets of their fold had not been in the regression."""
    weights, intercept = model
    first_pair, end_pair = pairs.of_label[label], pairs.of_label[label + 1]
    scores = np.empty(start[end_pair] - start[first_pair])
    for pair in range(first_pair, end_pair):
        size, out = pairs.size[pair], start[pair] - start[first_pair]
        excess = np.empty(size)
        for i in range(size):
            if chance[start[pair] + i] > 0:
                fitted = intercept + _dot(X, pairs.members[pairs.first[pair] + i], weights)
                excess[i] = fitted - chance[start[pair] + i]
            else:
                excess[i] = 0.0
        place = folds.first[pairs.group[pair]]
        for fold in range(0, size, FOLD):
            end = min(fold + FOLD, size)
            for i in range(fold, end):
                total = np.float64(chance[start[pair] + i])
                for j in range(fold, end):
                    total += folds.matrices[place] * excess[j]
                    place += 1
                scores[out + i] = total
    return scores


@numba.njit(cache=True, nogil=True)
def _reassign(pairs: Pairs, label: int, start: Int64, known: bool, scores: Float64, chance: Float32) -> float:
    """New chances of a label's candidates; returns the moved share of their mass.

    Where the carriers score nothing the features say nothing about the label, and its chances stay.
    """
    first_pair, end_pair = pairs.of_label[label], pairs.of_label[label + 1]
    first = start[first_pair]
    scale, mass, moved = 0.0, 0.0, 0.0
    for i in range(len(scores)):
        scale += chance[first + i] * scores[i]
        mass += chance[first + i]
    scale /= mass
    if not known:
        # Chances that may add up to anything must not set their own scale: the best member of each pair does.
        scale = 0.0
        for pair in range(first_pair, end_pair):
            scale += np.max(scores[start[pair] - first : start[pair + 1] - first]) / (end_pair - first_pair)
    if scale <= 1e-9:
        return 0.0
    for pair in range(first_pair, end_pair):
        size, begin = pairs.size[pair], start[pair]
        within = np.empty(size, np.int64)
        n_within = 0
        for i in range(size):
            if chance[begin + i] > 0:
                within[n_within] = i
                n_within += 1
        log_odds, posterior = np.empty(n_within), np.empty(n_within)
        for i in range(n_within):
            relative = scores[begin - first + within[i]] / scale
            log_odds[i] = _SHARPNESS * np.log(max(relative, _FLOOR))
        if known:
            given_count(log_odds, pairs.carriers[pair], posterior)
        else:
            given_some(log_odds, posterior)
        least = _OUT * pairs.carriers[pair] / size if known else 0.0
        for i in range(n_within):
            new = posterior[i] if posterior[i] >= least else 0.0
            moved += abs(new - chance[begin + within[i]])
            chance[begin + within[i]] = new
    return moved / mass


def _best_members(pairs: Pairs, start: Int64, chance: Float32, known: bool) -> tuple[Int64, Int64, Float32]:
    """Rows, labels and confidences of the members that each pair's count allows, the likeliest first."""
    expected = np.add.reduceat(np.append(chance.astype(np.float64), 0.0), start[:-1])
    count = pairs.carriers if known else np.clip(np.rint(expected).astype(np.int64), 1, pairs.size)
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
        order = np.argsort(-chance[start[pair] : start[pair + 1]], kind="mergesort")
        for rank in range(slots[pair + 1] - slots[pair]):
            chosen[slots[pair] + rank] = start[pair] + order[rank]
