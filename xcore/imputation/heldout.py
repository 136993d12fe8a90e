"""How good an imputation is where no row's labels are known: can it explain groups that it has not seen?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from xcore.components import Report, silent
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.imputed import Imputed
from xcore.imputation.ridge import RidgeSystem, ridge_system
from xcore.numeric import cholesky
from xcore.numeric.matrices import CSR, Float64, Int32, Int64, TopK, csr, normalise_rows, topk_of_dense
from xcore.numeric.parallel import over_blocks, single_threaded_blas
from xcore.training.data import Reading

ESTIMATE = "estimated_precision_at_1"
QUALITY = ("group_agreement", "group_precision", ESTIMATE, f"{ESTIMATE}_error")
_BLOCK_FLOATS = 16_000_000
_MOST_LABELS_A_ROW = 50
_JUDGED_ROWS, _JUDGED_SHARE, _JUDGED_FEATURES = 5000, 0.2, 2000  # what judging one imputer may cost
_SMALLEST_ABSENCE = 0.02  # a label that nearly every group has tells next to nothing, and may not weigh more than this


class Solver(Protocol):
    """Trains the model that will learn from the imputed labels."""

    @property
    def two_readings(self) -> bool:
        """Whether confidences can be read in two ways; see `xcore.training.data.Reading`."""
        ...

    def best_labels(self, X: CSR, imputed: Imputed, rows: CSR, k: int) -> TopK:
        """Train on rows X with imputed labels, and rank the labels of other rows."""
        ...


class CanImpute(Protocol):
    """An imputer, or what chooses one."""

    def impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed: ...


class Explained(NamedTuple):
    """Label counts of held-out groups; with set merge, counts are cut to 1 on both sides.

    Attributes
    ----------
    both : float64 (groups,)
        Counts that predictions and truth share in each group, ``sum min(predicted, true)``.
    by_chance : float64 (groups,)
        What they would share with the set of any other group. Whoever names many labels finds many of a large group's
        set; where counts are known all predict equally many, and this is 0.
    n_true, n_predicted : counts of all groups.
    right : float64 (groups,)
        Estimate of the number of members whose best label is their own; see `_right_members`.
    sizes : int64 (groups,)
        Members.
    """

    both: Float64
    by_chance: Float64
    n_true: float
    n_predicted: float
    right: Float64
    sizes: Int64

    @property
    def beyond_chance(self) -> Float64:
        """What each group's predictions say of it alone."""
        return self.both - self.by_chance

    def quality(self) -> dict[str, float]:
        """The counts shared beyond chance as a share of the true ones; the shared ones as one of the predicted ones."""
        agreement = float(self.beyond_chance.sum()) / max(self.n_true, 1)
        return {
            "group_agreement": agreement,
            "group_precision": float(self.both.sum()) / max(self.n_predicted, 1),
            ESTIMATE: float(self.right.sum()) / max(int(self.sizes.sum()), 1),
            f"{ESTIMATE}_error": self.error(),
        }

    def error(self) -> float:
        """The standard error of the estimated precision at 1; groups are what is drawn."""
        spread = self.right - self.right.sum() * self.sizes / max(int(self.sizes.sum()), 1)
        return float(np.sqrt(np.sum(spread**2))) / max(int(self.sizes.sum()), 1)

    def lead(self, other: Explained) -> tuple[float, float]:
        """By how much the estimated precision at 1 is above that of another, and the standard error of this."""
        gain, n = self.right - other.right, max(int(self.sizes.sum()), 1)
        spread = gain - gain.sum() * self.sizes / n
        return float(gain.sum()) / n, float(np.sqrt(np.sum(spread**2))) / n

    def surely_better(self, other: Explained) -> bool:
        """Whether the lead over another is more than two standard errors."""
        lead, error = self.lead(other)
        return lead > 2 * error

    @classmethod
    def joined(cls, parts: Sequence[Explained]) -> Explained:
        """The held-out groups of several splits together."""
        n_true, n_predicted = sum(part.n_true for part in parts), sum(part.n_predicted for part in parts)
        both, by_chance = (np.concatenate(one) for one in zip(*((p.both, p.by_chance) for p in parts), strict=True))
        right, sizes = (np.concatenate(one) for one in zip(*((p.right, p.sizes) for p in parts), strict=True))
        return cls(both, by_chance, n_true, n_predicted, right, sizes)


class HeldOutGroups:
    """Held-out groups. They measure imputers that learn from the other groups.

    The model that is trained on an imputation is the `solver`: the model of the pipeline, or else a ridge regression as
    a stand-in. Two things are measured. `Explained.right` estimates how often the best label of a row is its own. The
    counts in `Explained.both` are those of rows that get as many best labels as their group has on average.

    Parameters
    ----------
    share : share of the groups to set aside.
    most_rows : at most this many rows among them; bounds the cost of judging.
    penalty : of the ridge regression.
    solver : Solver or None
    fold : int
        Which of the ``1 / share`` disjoint parts of the groups is set aside.
    max_joint : int
        Features that the ridge regression solves for jointly.
    """

    def __init__(
        self,
        X: CSR,
        groups: Groups,
        rng: np.random.Generator,
        share: float = 0.1,
        most_rows: int = 2000,
        penalty: float = 1.0,
        solver: Solver | None = None,
        fold: int = 0,
        max_joint: int = 6000,
    ) -> None:
        self._X = X
        self._seen, self._left = _split(groups, rng, share, most_rows, fold)
        self._rows = np.unique(self._left.members.indices).astype(np.int64)
        in_groups = np.bincount(self._seen.labels.indices, minlength=groups.n_labels)
        self._rates = in_groups / max(self._seen.n_groups, 1)
        self._counted = np.unique(self._seen.members.indices)
        self._solver = solver
        if solver is None:
            system = ridge_system(normalise_rows(X), self._counted, penalty, max_joint=max_joint)
            self._judge = Judge(system, self._rows)

    def explained(self, imputer: CanImpute, rng: np.random.Generator) -> Explained:
        """Impute without the held-out groups, train on the result, and predict the held-out groups' labels."""
        return self._of(imputer.impute(self._X, self._seen, rng, silent))

    def explained_each(self, imputer: Imputer, rng: np.random.Generator) -> list[tuple[Imputer, Reading, Explained]]:
        """The same for each setting that the imputer leaves open, and each way to read the confidences."""
        return [
            (setting, reading, self._of(replace(imputed, reading=reading)))
            for setting, imputed in imputer.impute_each(self._X, self._seen, rng)
            for reading in self._readings(imputed)
        ]

    def _readings(self, imputed: Imputed) -> list[Reading]:
        readings: list[Reading] = [imputed.reading]
        if self._solver is not None and self._solver.two_readings and bool((imputed.Y.data < 1).any()):
            readings.append("weight" if imputed.reading == "target" else "target")
        return readings

    def _of(self, imputed: Imputed) -> Explained:
        k = _labels_a_row(self._left)
        depth = int(k.max(initial=1))
        if self._solver is None:
            predicted = self._judge.predict(imputed, depth)
        else:
            known = replace(imputed, Y=imputed.Y[self._counted])
            predicted = self._solver.best_labels(self._X[self._counted], known, self._X[self._rows], depth)
        right = _right_members(self._left, self._seen, predicted.labels[:, 0], self._rows)
        return _agreement(self._left, self._rows, predicted, k, self._rates, right)


def held_out_quality(
    imputer: CanImpute, X: CSR, groups: Groups, details: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, float]:
    """What held-out groups say about an imputer, whether or not the labels of rows are known.

    A fifth of the groups is held out, the imputer learns from the others, and a ridge regression on its labels predicts
    the labels of the held-out groups. At most 5,000 rows take part, so the cost is bounded. `auto` has made such
    trials with the model of the run: `details` of its result say what they gave for the chosen imputer.

    Returns
    -------
    dict
        ``group_agreement``, ``group_precision``, ``estimated_precision_at_1`` and its ``_error``. Empty where there is
        nothing to impute (no group has two members) or fewer than two groups have labels. Without the estimate where
        it is surely above 1, as groups of similar rows can make it: it is none then.
    """
    if "trials" in details:
        chosen = details["chosen"]["imputer"]
        trial = next(one for one in details["trials"] if one["imputer"] == chosen and one["lead"] == 0)
        return _possible({name: float(trial[name]) for name in QUALITY})
    judged = rng.permutation(np.flatnonzero((groups.sizes > 0) & (np.diff(groups.labels.indptr) > 0)))
    fits = np.cumsum(groups.sizes[judged]) <= _JUDGED_ROWS
    fits[:2] = True
    part = groups.take(np.sort(judged[fits]))
    if len(judged) < 2 or bool((part.sizes <= 1).all()):
        return {}
    held_out = HeldOutGroups(X, part, rng, _JUDGED_SHARE, _JUDGED_ROWS, max_joint=_JUDGED_FEATURES)
    return _possible(held_out.explained(imputer, rng).quality())


def is_too_high(quality: Mapping[str, float]) -> bool:
    """Whether the estimated precision at 1 is surely above 1, as groups of similar rows can make it."""
    return quality[ESTIMATE] > 1 + 2 * quality[f"{ESTIMATE}_error"]


def _possible(quality: dict[str, float]) -> dict[str, float]:
    if is_too_high(quality):
        return {name: value for name, value in quality.items() if not name.startswith(ESTIMATE)}
    return quality | {ESTIMATE: min(quality[ESTIMATE], 1.0)}


def _right_members(left: Groups, seen: Groups, best: Int32, rows: Int64) -> Float64:
    """Estimate of how many members of each left-out group have their best label; no row's labels are needed.

    A label that n members predict as their best finds c carriers in their group. If groups are random, the other
    members of a predicting row carry the label as often as any row does, with the rate r. What is left of
    ``n (c - (size - 1) r)`` are the rows that are right: an unbiased estimate. Where only sets are known, a label that
    is right is in the set, and one that is wrong is there with the chance o that another member carries it: so ``n (in
    set - o) / (1 - o)`` is unbiased. Rates are those of all other groups. Groups of similar rows share labels beyond
    their rate; there the estimate is too high, and only tells imputers apart.
    """
    group = np.repeat(np.arange(left.n_groups), left.sizes)
    label = best[np.searchsorted(rows, left.members.indices)].astype(np.int64)
    offered = label >= 0
    keys, n = np.unique((group * left.n_labels + label)[offered], return_counts=True)
    group, label = np.divmod(keys, left.n_labels)
    found = np.asarray(left.labels[group, label], np.float64).reshape(-1)
    others = left.sizes[group] - 1
    n_groups, n_members = seen.n_groups + left.n_groups, int(seen.sizes.sum() + left.sizes.sum())
    is_set = left.merge == "set"
    counts = np.concatenate([seen.labels.data, left.labels.data])
    in_all = np.bincount(
        np.concatenate([seen.labels.indices, left.labels.indices]), None if is_set else counts, left.n_labels
    )
    rest = in_all[label] - found  # in the other groups
    if is_set:
        missed = np.maximum(1 - rest / max(n_groups - 1, 1), 0.5 / n_groups)
        absent = missed ** (others * n_groups / n_members)  # chance that no other member carries the label
        right = n * ((found > 0) - (1 - absent)) / np.maximum(absent, _SMALLEST_ABSENCE)
    else:
        right = n * (found - others * rest / np.maximum(n_members - left.sizes[group], 1))
    by_group: Float64 = np.bincount(group, right, left.n_groups).astype(np.float64)
    return by_group


def _split(groups: Groups, rng: np.random.Generator, share: float, most_rows: int, fold: int) -> tuple[Groups, Groups]:
    """Groups to learn from, and held-out groups: a random `share`, with at most `most_rows` members."""
    judged = np.flatnonzero((groups.sizes > 0) & (np.diff(groups.labels.indptr) > 0))
    n_left = max(1, int(np.ceil(share * len(judged) - 1e-9)))
    order = np.roll(rng.permutation(judged), -fold * n_left)[:n_left]
    fits = np.cumsum(groups.sizes[order]) <= most_rows
    fits[:1] = True
    left = np.sort(order[fits])
    return groups.take(np.setdiff1d(np.arange(groups.n_groups), left)), groups.take(left)


def _labels_a_row(groups: Groups) -> Int64:
    """How many labels a member of each group has on average, at least 1."""
    total = np.add.reduceat(np.append(groups.labels.data, 0.0), groups.labels.indptr[:-1])
    return np.clip(np.rint(total / np.maximum(groups.sizes, 1)), 1, _MOST_LABELS_A_ROW).astype(np.int64)


class Judge:
    """The k best labels of some rows, by a ridge regression on whatever labels all rows are given.

    ``A^-1 x`` of the judged rows is computed once, cost O(rows h^2), and serves all labels and imputations.
    """

    def __init__(self, system: RidgeSystem, rows: Int64) -> None:
        self._X = csr(*system.X, system.n_joint)
        self._solved = np.ascontiguousarray(self._X[rows].toarray())
        with single_threaded_blas():
            cholesky.solve(system.factor, self._solved)
        rest = system.rest
        self._rest = csr(*rest.X, len(rest.scale))
        self._judged_rest = self._rest[rows] * rest.scale[None]
        self._with_mean, self._mean_square = rest.with_mean, rest.mean_square
        self._rows = rows

    def predict(self, imputed: Imputed, k: int) -> TopK:
        """Cost O(labels rows h)."""
        by_label = imputed.Y.T.tocsr()
        used = np.flatnonzero(np.diff(by_label.indptr))
        width = max(1, min(256, _BLOCK_FLOATS // max(self._X.shape[1], 1)))
        blocks = [slice(first, first + width) for first in range(0, len(used), width)]
        with single_threaded_blas():
            parts = over_blocks(lambda block: topk_of_dense(self.scores(by_label[used[block]]), k), blocks)
        return _merged(parts, [used[block] for block in blocks], len(self._rows), k)

    def scores(self, targets: CSR) -> npt.NDArray[np.floating]:
        """Scores (rows, labels) for targets (labels, n); the rest of the features as in `xcore.imputation.ridge`."""
        scores: npt.NDArray[np.floating] = self._solved @ (targets @ self._X).toarray().T
        if self._rest.shape[1]:
            mass, with_mean = targets.sum(axis=1), targets @ self._with_mean
            scores = scores + (self._judged_rest @ (targets @ self._rest).T).toarray()
            scores = scores + (mass * self._mean_square - with_mean)[None] - np.outer(self._with_mean[self._rows], mass)
        return scores


def _merged(parts: list[TopK], labels: list[Int64], n_rows: int, k: int) -> TopK:
    """The k best over blocks of labels."""
    if not parts:
        return TopK(np.full((n_rows, k), -1, np.int32), np.full((n_rows, k), -np.inf, np.float32))
    names = [np.where(part.labels >= 0, own[part.labels], -1) for part, own in zip(parts, labels, strict=True)]
    all_labels, all_scores = np.hstack(names), np.hstack([part.scores for part in parts])
    top = topk_of_dense(all_scores, k)
    return TopK(np.take_along_axis(all_labels, np.maximum(top.labels, 0), axis=1).astype(np.int32), top.scores)


def _agreement(left: Groups, rows: Int64, predicted: TopK, k: Int64, rates: Float64, right: Float64) -> Explained:
    """Overlap of predicted and true label counts of the left-out groups; `rates` of the groups have each label."""
    group = np.repeat(np.arange(left.n_groups), left.sizes)
    place = np.searchsorted(rows, left.members.indices)
    offered = (np.arange(predicted.k)[None] < k[group][:, None]) & (predicted.labels[place] >= 0)
    keys = (group[:, None] * left.n_labels + predicted.labels[place])[offered]
    names, counts = np.unique(keys, return_counts=True)
    true_keys = np.repeat(np.arange(left.n_groups), np.diff(left.labels.indptr)) * left.n_labels + left.labels.indices
    order = np.argsort(true_keys)
    true_keys, true_counts = true_keys[order], left.labels.data[order]
    by_chance = np.zeros(left.n_groups)
    if left.merge == "set":
        counts = np.minimum(counts, 1)
        by_chance += np.bincount(names // left.n_labels, rates[names % left.n_labels], left.n_groups)
    at = np.minimum(np.searchsorted(true_keys, names), len(true_keys) - 1)
    shared = np.where(true_keys[at] == names, np.minimum(true_counts[at], counts), 0)
    both: Float64 = np.bincount(names // left.n_labels, shared, left.n_groups).astype(np.float64)
    return Explained(both, by_chance, float(true_counts.sum()), float(counts.sum()), right, left.sizes)
