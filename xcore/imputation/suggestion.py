"""Which rows to label next: those whose own labels would tell most about their groups."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from xcore.grouping.groups import Groups
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import Float64, Int64


def uncertainty(imputed: Imputed) -> Float64:
    """Entropy of each row's labels in bits, (n,): the sum over its imputed labels of the entropy of the confidence."""
    q = imputed.Y.data.astype(np.float64)
    entropy = (entr(q) + entr(1 - q)) / np.log(2)
    rows = np.repeat(np.arange(imputed.Y.shape[0]), np.diff(imputed.Y.indptr))
    total: Float64 = np.bincount(rows, entropy, imputed.Y.shape[0]).astype(np.float64)
    return total


def rows_to_label(imputed: Imputed, groups: Groups, n: int) -> Int64:
    """The n rows to label first, the most telling one first.

    A row tells the more, the less certain its labels are. The labels of a row also say what is left for the other
    members of its group. So each group offers its most uncertain row before any group offers its second one. Rows whose
    labels are known, alone in a group, are left out, and so are rows without any doubt. Cost O(n log n).
    """
    unknown = groups.without_known_rows()
    value = uncertainty(imputed)
    is_open = np.zeros(groups.n_rows, bool)
    several = unknown.take(np.flatnonzero(unknown.sizes > 1))
    is_open[several.members.indices] = True
    group_of = np.full(groups.n_rows, -1, np.int64)
    group_of[several.members.indices] = np.repeat(np.arange(several.n_groups), several.sizes)
    rows = np.flatnonzero(is_open & (value > 0))
    order = rows[np.lexsort((rows, -value[rows], group_of[rows]))]
    first = np.searchsorted(group_of[order], group_of[order])
    turn = np.arange(len(order)) - first  # 0 for the most uncertain row of a group
    ranked: Int64 = order[np.lexsort((order, -value[order], turn))]
    return ranked[:n]
