"""What a model can say about bags of rows: their labels, and which row explains each label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int64, TopK
from xcore.training.data import Matrix

NO_ROW = -1
EXPLAINED_FILE = "explained.parquet"  # of a model that explains bags: some training bags


@dataclass(frozen=True)
class ExplainedBags:
    """The best labels of bags, and the row of each bag that explains each of them.

    Attributes
    ----------
    top : TopK (bags, k)
    rows : int64 (bags, k)
        Position of the explaining row; -1 where there is no label.
    weights : float32 (bags, k)
        Its part of the evidence of all rows of the bag, from 0 to 1.
    """

    top: TopK
    rows: Int64
    weights: Float32

    @classmethod
    def empty(cls, n_bags: int, k: int) -> Self:
        """No labels yet."""
        shape = (n_bags, k)
        top = TopK(np.full(shape, NO_LABEL, np.int32), np.full(shape, -np.inf, np.float32))
        return cls(top, np.full(shape, NO_ROW, np.int64), np.zeros(shape, np.float32))

    def put(self, bags: Int64, top: TopK, rows: Int64, weights: Float32) -> None:
        """Fill in some bags."""
        self.top.labels[bags], self.top.scores[bags] = top.labels, top.scores
        self.rows[bags, : rows.shape[1]], self.weights[bags, : rows.shape[1]] = rows, weights

    def to_table(self, bags: Int64) -> pa.Table:
        """One table row per bag, with lists of its labels, scores, explaining rows and weights."""
        is_label = self.top.labels != NO_LABEL
        offsets = np.concatenate([[0], np.cumsum(is_label.sum(axis=1))]).astype(np.int32)

        def lists(values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.ListArray:
            return pa.ListArray.from_arrays(offsets, pa.array(values[is_label], kind))

        return pa.table(
            {
                "bag": pa.array(bags, pa.int64()),
                "labels": lists(self.top.labels, pa.int32()),
                "scores": lists(self.top.scores, pa.float32()),
                "rows": lists(self.rows, pa.int64()),
                "weights": lists(self.weights, pa.float32()),
            }
        )

    def precision(self, bags: CSR, truth: CSR) -> float | None:
        """Of the explained labels that their bag carries, the share whose row carries them too; None if there are none.

        Parameters
        ----------
        bags : CSR (bags, L)
            Labels of these bags.
        truth : CSR (n, L)
            Labels of the rows.
        """
        bag, place = np.nonzero(self.top.labels != NO_LABEL)
        labels, rows = self.top.labels[bag, place], self.rows[bag, place]
        carried = np.asarray(bags[bag, labels]).ravel() > 0
        right = np.asarray(truth[rows, labels]).ravel() > 0
        return float(right[carried].mean()) if carried.any() else None


@runtime_checkable
class ExplainsBags(Protocol):
    """A trained model that predicts bags of rows and says which row explains a label."""

    def explain(self, X: Matrix, members: CSR, k: int) -> ExplainedBags:
        """The k best labels of each bag (CSR, bags x rows of X), each with the row that explains it."""
        ...
