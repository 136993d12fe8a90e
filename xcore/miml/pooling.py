"""Bags of unequal size as one run of rows: the attention mask, and what pools rows into bags. Nothing is padded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcore.numeric.matrices import CSR, Float32, Int64


@dataclass(frozen=True)
class BagRows:
    """The rows of some bags, one bag after the other. No bag is empty.

    Attributes
    ----------
    rows : int64 (n,)
        Positions of the rows in their matrix. Overlapping bags repeat a row.
    offsets : int64 (b + 1,)
        Bag j has ``rows[offsets[j] : offsets[j + 1]]``.
    """

    rows: Int64
    offsets: Int64

    @classmethod
    def of(cls, members: CSR, bags: Int64) -> BagRows:
        """The rows of some bags of a membership matrix. Cost O(rows of these bags)."""
        starts, sizes = members.indptr[bags].astype(np.int64), np.diff(members.indptr)[bags].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, sizes)
        return cls(members.indices[places].astype(np.int64), offsets)

    @property
    def sizes(self) -> Int64:
        sizes: Int64 = np.diff(self.offsets)
        return sizes

    @property
    def bag(self) -> Int64:
        """The bag of each row (n,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.sizes)

    def sums(self, values: Float32) -> Float32:
        """Sums (b, m) over each bag of values (n, m)."""
        found: Float32 = np.add.reduceat(values, self.offsets[:-1], axis=0)
        return found

    def means(self, values: Float32) -> Float32:
        """Means (b, m) over each bag of values (n, m)."""
        found: Float32 = np.divide(self.sums(values), self.sizes[:, None], dtype=np.float32, casting="same_kind")
        return found

    def largest(self, values: Float32) -> Float32:
        """Maxima (b, m) over each bag of values (n, m)."""
        found: Float32 = np.maximum.reduceat(values, self.offsets[:-1], axis=0)
        return found

    def mask(self, scores: Float32) -> Float32:
        """The soft assignment of labels to rows: in each bag and column, its size times the softmax of the scores.

        Parameters
        ----------
        scores : float32 (n, m)
            tau times the inner products of unit rows with label embeddings. Equal scores give 1 everywhere.
        """
        weights = np.exp(scores - self.largest(scores)[self.bag])
        scale: Float32 = self.sizes[:, None].astype(np.float32) / self.sums(weights)
        mask: Float32 = weights * scale[self.bag]
        return mask
