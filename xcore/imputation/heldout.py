"""How good an imputation is where no row's labels are known: can it explain groups that it has not seen?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from xcore.components import silent
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.imputed import Imputed
from xcore.imputation.ridge import RidgeSystem, ridge_system
from xcore.numeric import cholesky
from xcore.numeric.matrices import CSR, Float64, Int64, TopK, csr, normalise_rows, topk_of_dense
from xcore.numeric.parallel import over_blocks, single_threaded_blas

_BLOCK_FLOATS = 16_000_000
_MOST_LABELS_A_ROW = 50


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
    """

    both: Float64
    by_chance: Float64
    n_true: float
    n_predicted: float

    @property
    def beyond_chance(self) -> Float64:
        """What each group's predictions say of it alone."""
        return self.both - self.by_chance

    def quality(self) -> dict[str, float]:
        """The counts shared beyond chance as a share of the true ones; the shared ones as one of the predicted ones."""
        agreement = float(self.beyond_chance.sum()) / max(self.n_true, 1)
        return {"group_agreement": agreement, "group_precision": float(self.both.sum()) / max(self.n_predicted, 1)}

    def surely_better(self, other: Explained) -> bool:
        """Does this explain more, by over two standard errors of the difference of groups?"""
        gain = self.beyond_chance - other.beyond_chance
        return bool(gain.sum() > 2 * np.sqrt(np.sum(gain**2)))


class HeldOutGroups:
    """Held-out groups. They measure imputers that learn from the other groups.

    The model trained on an imputation is a ridge regression, a stand-in for whatever is trained later. Each held-out
    row gets as many best labels as its group has on average, and the group gets the sum. A model that learned to tell
    members apart reproduces the group's counts; one that learned the groups' mixtures repeats the commonest labels.

    Parameters
    ----------
    share : share of the groups to set aside.
    most_rows : at most this many rows among them; bounds the cost of judging.
    penalty : of the ridge regression.
    """

    def __init__(
        self,
        X: CSR,
        groups: Groups,
        rng: np.random.Generator,
        share: float = 0.1,
        most_rows: int = 2000,
        penalty: float = 1.0,
    ) -> None:
        self._X = X
        self._seen, self._left = _split(groups, rng, share, most_rows)
        self._rows = np.unique(self._left.members.indices).astype(np.int64)
        in_groups = np.bincount(self._seen.labels.indices, minlength=groups.n_labels)
        self._rates = in_groups / max(self._seen.n_groups, 1)
        counted = np.unique(self._seen.members.indices)
        system = ridge_system(normalise_rows(X), counted, penalty, max_joint=6000)
        self._judge = Judge(system, self._rows)

    def explained(self, imputer: Imputer, rng: np.random.Generator) -> Explained:
        """Impute without the held-out groups, train on the result, and predict the held-out groups' labels."""
        imputed = imputer.impute(self._X, self._seen, rng, silent)
        k = _labels_a_row(self._left)
        predicted = self._judge.predict(imputed, int(k.max(initial=1)))
        return _agreement(self._left, self._rows, predicted, k, self._rates)


def _split(groups: Groups, rng: np.random.Generator, share: float, most_rows: int) -> tuple[Groups, Groups]:
    """Groups to learn from, and held-out groups: a random `share`, with at most `most_rows` members."""
    judged = np.flatnonzero((groups.sizes > 0) & (np.diff(groups.labels.indptr) > 0))
    order = rng.permutation(judged)[: max(1, int(np.ceil(share * len(judged))))]
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


def _agreement(left: Groups, rows: Int64, predicted: TopK, k: Int64, rates: Float64) -> Explained:
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
    return Explained(both, by_chance, float(true_counts.sum()), float(counts.sum()))
