"""Which labels to choose: a penalised cut of the affinity plus a score of each label, maximised by lazy greedy.

    cut(S)   = sum of w_ij over i outside S and j in S
    f_pen(S) = cut(S) - penalty * sum of w_ij over i, j in S
    f(S)     = f_pen(S) + sum of the scores of S

f is submodular: what a label adds only shrinks as S grows. It is monotone as long as S is small.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from xcore.numeric.matrices import CSR, Float64, Int32


@dataclass(frozen=True)
class SubsetValue:
    """The set function f.

    Attributes
    ----------
    affinity : CSR float64 (L, L)
        w_ij, not negative, with an empty diagonal. It need not be symmetric.
    penalty : float
        Weight of the affinity inside S, at least 0.
    scores : float64 (L,)
        What each label adds by itself.
    """

    affinity: CSR
    penalty: float
    scores: Float64

    def first_gains(self) -> Float64:
        """What each label adds to the empty set: its column of the affinity and its score."""
        return self._column_sums() + self.scores

    def of(self, members: Int32) -> float:
        """f(S) in its closed form: ``sum of c_j - (1 + penalty) * sum of w_ij`` over S, c_j the sum of column j."""
        inside = self.affinity[members][:, members].sum()
        return float(self.first_gains()[members].sum() - (1 + self.penalty) * inside)

    def _column_sums(self) -> Float64:
        sums = np.bincount(self.affinity.indices, self.affinity.data, self.affinity.shape[1])
        return sums.astype(np.float64)


@dataclass(frozen=True)
class Chosen:
    """A chosen set.

    Attributes
    ----------
    labels : int32 (k,)
        In the order of their choice.
    gains : float64 (k,)
        What each added to f when it was chosen.
    """

    labels: Int32
    gains: Float64


def affinity_of(coefficients: CSR, form: Literal["symmetric", "directed"]) -> CSR:
    """The affinity of a self-representation; row j of `coefficients` holds the column z_j of Z.

    symmetric: ``(|Z| + |Z|') / 2``. directed: ``|Z|``, so w_ij says how much label i takes part in label j.
    """
    sizes = abs(coefficients)
    affinity = (sizes + sizes.T) / 2 if form == "symmetric" else sizes.T
    found: CSR = affinity.tocsr()
    return found


def greedy(value: SubsetValue, budget: int, eligible: npt.NDArray[np.bool_], stop_at_loss: bool = False) -> Chosen:
    """Choose up to `budget` eligible labels, the one with the largest gain first; ties go to the lower label id.

    Lazy: a queue holds the gains as they were when a label was last looked at. Gains only shrink, so these are upper
    bounds, and a label with a current gain at the head of the queue is the best. Gains are kept exact: a choice u
    changes those of its neighbours by ``(1 + penalty)(w_iu + w_ui)``. Cost O(L + nnz + k log L) in all.

    Parameters
    ----------
    value : SubsetValue
    budget : int
    eligible : bool (L,)
    stop_at_loss : bool
        Stop when the best gain is negative. Otherwise the budget is used up.
    """
    gains, rows, columns = value.first_gains(), value.affinity, value.affinity.T.tocsr()
    queue = [(-gain, label) for label, gain in enumerate(gains.tolist()) if eligible[label]]
    heapq.heapify(queue)
    chosen: list[tuple[int, float]] = []
    while queue and len(chosen) < budget:
        minus_gain, label = heapq.heappop(queue)
        gain = float(gains[label])
        if gain < -minus_gain:
            heapq.heappush(queue, (-gain, label))
            continue
        if stop_at_loss and gain < 0:
            break
        chosen.append((label, gain))
        for matrix in (rows, columns):
            part = slice(matrix.indptr[label], matrix.indptr[label + 1])
            gains[matrix.indices[part]] -= (1 + value.penalty) * matrix.data[part]
    labels, found = [label for label, _ in chosen], [gain for _, gain in chosen]
    return Chosen(np.array(labels, np.int32), np.array(found, np.float64))
