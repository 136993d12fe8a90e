"""A start for our imputer that needs no imputation: a regression of groups' label counts on the sums of their rows."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.grouping.groups import Groups
from xcore.imputation.candidates import Candidates, State
from xcore.imputation.pooling import only_group
from xcore.imputation.ridge import RidgeSystem
from xcore.numeric.matrices import Float32, Float64, Int64, csr
from xcore.numeric.parallel import single_threaded_blas

_MOST_GROUPS = 2048
SCALINGS = 2  # the carriers' mean score needs chances, which need the mean score


class SumRegression(NamedTuple):
    """Ridge regression of counts on sums of rows, each divided by the root of its group's size: the errors of all
    groups are then about alike. A row's score is unbiased whatever the group, because no member is given a label.

    Attributes
    ----------
    sums : float32 (m, h)
        Sums of the members' joint features.
    inverse : float64 (m, m)
        Of the sums' inner products with the penalty on the diagonal.
    roots : float64 (m,)
        Roots of the groups' sizes.
    group : int64 (n,)
        The group of each row; -1 for rows in none.
    leverage : float32 (n,)
        By how much a unit of its own group's residual moves a row's score.
    """

    sums: Float32
    inverse: Float64
    roots: Float64
    group: Int64
    leverage: Float32

    @classmethod
    def of(cls, system: RidgeSystem, groups: Groups, penalty: float) -> SumRegression:
        """Cost O(m^2 (m + h) + nnz(X)), memory O(m (m + h)); groups must not overlap."""
        X, roots = csr(*system.X, system.n_joint), np.sqrt(np.maximum(groups.sizes, 1).astype(np.float64))
        sums = ((groups.members.astype(np.float32) @ X).toarray() / roots[:, None]).astype(np.float32)
        group = np.full(groups.n_rows, -1, np.int64)
        group[groups.members.indices] = np.repeat(np.arange(groups.n_groups), groups.sizes)
        with single_threaded_blas():
            kernel = (sums @ sums.T).astype(np.float64)
            kernel[np.diag_indices(len(kernel))] += penalty
            inverse = np.linalg.inv(kernel)
            own = (inverse / np.diag(inverse)[:, None]).astype(np.float32) @ sums  # half the time of float64
        leverage = np.zeros(groups.n_rows, np.float32)
        _leverage(system.X.indptr, system.X.indices, system.X.data, group, own, leverage)
        return cls(sums, inverse, roots, group, leverage)

    def fit(self, counts: Float64) -> tuple[Float32, Float32]:
        """Weights (labels, h) for the counts (m, labels), and what each group contributes to them (m, labels)."""
        dual = self.inverse @ (counts / self.roots[:, None])
        return np.ascontiguousarray((dual.T.astype(np.float32)) @ self.sums), dual.astype(np.float32)

    def without_own_group(self, scores: Float32, dual: Float32, rows: Int64) -> Float32:
        """Scores (rows, labels) of some rows by a regression without their group; others keep theirs."""
        own = dual[self.group[rows]] * (self.leverage[rows] * (self.group[rows] >= 0))[:, None]
        left: Float32 = scores - own
        return left


def can_sum(groups: Groups) -> bool:
    """Whether a start from sums is possible: counts are known, no groups overlap, and they are few enough."""
    return groups.merge == "list" and 3 <= groups.n_groups <= _MOST_GROUPS and bool(only_group(groups).all())


def counts_of(candidates: Candidates, labels: Int64, n_groups: int) -> Float64:
    """Counts (groups, labels) of some labels."""
    pairs, counts = candidates.pairs, np.zeros((n_groups, len(labels)))
    for place, label in enumerate(labels):
        own = slice(pairs.of_label[label], pairs.of_label[label + 1])
        counts[pairs.group[own], place] = pairs.carriers[own]
    return counts


@numba.njit(cache=True, nogil=True)
def leave_out_groups(
    regression: SumRegression, candidates: Candidates, labels: Int64, dual: Float32, state: State
) -> None:
    """Turn the scores of some labels' candidates (in place) into those of a regression without their group."""
    pairs, start = candidates.pairs, candidates.start
    for k in range(len(labels)):
        for pair in range(pairs.of_label[labels[k]], pairs.of_label[labels[k] + 1]):
            for i in range(pairs.size[pair]):
                leverage = regression.leverage[pairs.members[pairs.first[pair] + i]]
                state.scores[start[pair] + i] -= leverage * dual[pairs.group[pair], k]


@numba.njit(cache=True, nogil=True)
def _leverage(indptr: Int64, indices: Int64, data: Float32, group: Int64, own: Float32, leverage: Float32) -> None:
    """Inner product of each row with the direction of its own group."""
    for row in range(len(group)):
        if group[row] >= 0:
            total = 0.0
            for entry in range(indptr[row], indptr[row + 1]):
                total += data[entry] * own[group[row], indices[entry]]
            leverage[row] = total
