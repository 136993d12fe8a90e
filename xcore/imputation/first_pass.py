"""The first turn of our imputer, where groups are few: one regression per group serves all labels."""

from __future__ import annotations

import numba
import numpy as np

from xcore.imputation.base import Pairs
from xcore.imputation.column_products import PANEL, JointRows, in_panels, project
from xcore.imputation.ridge import RidgeSystem
from xcore.numeric import cholesky
from xcore.numeric.matrices import Float32, Int64
from xcore.numeric.parallel import even_blocks, over_blocks

_BLOCK_ROWS = 1024
_PAIRS_AT_ONCE = 256


def first_scores(system: RidgeSystem, pairs: Pairs, start: Int64, chance: Float32, scores: Float32) -> None:
    """Fitted scores (in place) of all candidates, where all those of a pair have the same chance.

    The regression of a label is then the sum over its groups of their chance times ``A^-1 sum_i x_i``, which does not
    depend on the label. Cost O(m h^2 + m nnz(X) + m candidates) for m groups, the last by matrix products; memory
    O(m h) and, for each thread, O(m (1024 + size of a group)). Groups must not overlap, and their members must stand
    side by side, group by group (`rows_by_group`).
    """
    order = np.argsort(pairs.group, kind="stable")
    groups, begin = np.unique(pairs.group[order], return_index=True)
    of_group = np.append(begin, len(order))
    sums = np.zeros((len(groups), system.n_joint), np.float32)
    _sum_groups(system.X, pairs, order[begin], sums)
    over_blocks(lambda part: cholesky.solve(system.factor, part), [sums[i : i + 128] for i in range(0, len(sums), 128)])
    panels, place = in_panels(sums), np.searchsorted(groups, pairs.group)
    share = chance[start[:-1]]

    def fill(block: range) -> None:
        _score_groups(system.X, panels, pairs, place, order, of_group, block.start, block.stop, start, share, scores)

    sizes = pairs.size[order[begin]]
    over_blocks(fill, even_blocks(sizes, max(1, int(sizes.sum()) // _BLOCK_ROWS)))


@numba.njit(cache=True, nogil=True)
def _sum_groups(X: JointRows, pairs: Pairs, one_pair: Int64, sums: Float32) -> None:
    """Sum of the members' rows of each group, which is known by any of its pairs."""
    for group in range(len(sums)):
        first = pairs.first[one_pair[group]]
        for row in pairs.members[first : first + pairs.size[one_pair[group]]]:
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                sums[group, X.indices[entry]] += X.data[entry]


@numba.njit(cache=True, nogil=True)
def _score_groups(
    X: JointRows,
    panels: Float32,
    pairs: Pairs,
    place: Int64,
    order: Int64,
    of_group: Int64,
    first: int,
    end: int,
    start: Int64,
    share: Float32,
    scores: Float32,
) -> None:
    """Scores of the candidates of the groups ``first <= j < end``; `place` says which group a pair belongs to."""
    label = np.repeat(np.arange(len(pairs.of_label) - 1), np.diff(pairs.of_label))
    first_row, last_pair = pairs.members[pairs.first[order[of_group[first]]]], order[of_group[end - 1]]
    n_rows = pairs.members[pairs.first[last_pair]] + pairs.size[last_pair] - first_row
    products = np.empty((n_rows, len(panels) * PANEL), np.float32)
    project(X, panels, first_row, products)
    for group in range(first, end):
        one_pair = order[of_group[group]]
        row = pairs.members[pairs.first[one_pair]] - first_row
        own_products = products[row : row + pairs.size[one_pair]]
        for part in range(of_group[group], of_group[group + 1], _PAIRS_AT_ONCE):
            own = order[part : min(part + _PAIRS_AT_ONCE, of_group[group + 1])]
            shares = np.zeros((len(own), products.shape[1]), np.float32)
            for k in range(len(own)):
                for pair in range(pairs.of_label[label[own[k]]], pairs.of_label[label[own[k]] + 1]):
                    shares[k, place[pair]] = share[pair]
            fitted = np.dot(shares, own_products.T)
            for k in range(len(own)):
                scores[start[own[k]] : start[own[k] + 1]] = fitted[k]
