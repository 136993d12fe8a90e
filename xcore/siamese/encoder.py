"""The encoder of rows and label texts as plain arrays: predictions need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import erf

from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, Float32, csr, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows
from xcore.numeric.ragged import TokenRows
from xcore.search.keys import unit_rows
from xcore.training.data import Matrix, canonical_csr

Activation: TypeAlias = Literal["relu", "gelu", "none"]

BLOCK_ROWS = 512


@dataclass(frozen=True)
class Encoder:
    """``f(x) = Nrm(act(x E))`` and ``Enc(x) = Nrm(f(x) + relu(R f(x)))``, both of length 1.

    Attributes
    ----------
    table : float32 (n_features, D)
        E: the vector of each token. If rows are vectors, a linear map of them.
    residual : float32 (D, D)
        R.
    activation : 'relu', 'gelu' or 'none'
    """

    table: Float32
    residual: Float32
    activation: Activation

    @property
    def n_features(self) -> int:
        return len(self.table)

    @property
    def dimensions(self) -> int:
        return int(self.table.shape[1])

    def intermediate(self, X: Matrix) -> Float32:
        """f(x), float32 (n, D). Cost O(nnz D). A row's bits depend on that row alone."""
        rows = bag_of_tokens(X)
        out = np.empty((rows.shape[0], self.dimensions), np.float32)

        def fill(part: slice) -> None:
            out[part] = unit_rows(_activated(self._sums(rows[part]), self.activation))

        over_blocks(fill, row_blocks(rows.shape[0], BLOCK_ROWS))
        return out

    def final(self, intermediate: Float32) -> Float32:
        """Enc(x), float32 (n, D), from f(x). Cost O(n D^2)."""
        out = np.empty_like(intermediate)

        def fill(part: slice) -> None:
            branch = product_of_rows(intermediate[part], self.residual)
            out[part] = unit_rows(intermediate[part] + np.maximum(branch, 0, out=branch))

        over_blocks(fill, row_blocks(len(intermediate), BLOCK_ROWS))
        return out

    def encode(self, X: Matrix) -> Float32:
        """Enc(x), float32 (n, D), of rows in any form. Cost O(nnz D + n D^2)."""
        return self.final(self.intermediate(X))

    def norms(self) -> dict[str, float]:
        """The norms that enter the generalisation bounds (Theorem 3 of the supplement).

        |E| and |R| are (1, 1) norms, the sums of all absolute values, and (inf, 1) norms, the sum over the D output
        dimensions of the largest absolute value. sigma is the spectral norm.
        """
        table, residual = np.abs(self.table), np.abs(self.residual)
        return {
            "norm_table_1": float(table.sum(dtype=np.float64)),
            "norm_table_inf": float(table.max(axis=0).sum(dtype=np.float64)),
            "norm_residual_1": float(residual.sum(dtype=np.float64)),
            "norm_residual_inf": float(residual.max(axis=1).sum(dtype=np.float64)),
            "norm_residual_sigma": float(np.linalg.norm(self.residual.astype(np.float64), 2)),
        }

    def _sums(self, rows: Any) -> Float32:
        if sp.issparse(rows):
            return np.asarray(rows @ self.table, np.float32)
        return product_of_rows(np.ascontiguousarray(rows, np.float32), self._columns)

    @cached_property
    def _columns(self) -> Float32:
        return np.ascontiguousarray(self.table.T)

    def arrays(self) -> dict[str, Float32]:
        """All weights, by name."""
        return {"table": self.table, "residual": self.residual}

    @classmethod
    def take(cls, file: ArrayFile, activation: Activation, n_features: int) -> Self:
        """What `arrays` gave, from a file; every array is checked."""
        table = file.take("table", np.float32, (n_features, None)).finite()
        if not table.array.size:
            table.refuse("is empty", "at least one vector of at least one number")
        size = table.array.shape[1]
        residual = file.take("residual", np.float32, (size, size)).finite().array
        return cls(table.array, residual, activation)


def bag_of_tokens(X: Matrix) -> Matrix:
    """Token sequences as sparse rows of length 1; other rows as they are."""
    if not isinstance(X, TokenRows):
        return X
    counts: CSR = canonical_csr(csr(np.ones(len(X.ids)), X.ids, X.offsets, X.n_tokens))
    squares = np.add.reduceat(np.append(counts.data**2, 0), np.minimum(counts.indptr[:-1], len(counts.data)))
    lengths = np.sqrt(np.where(np.diff(counts.indptr) > 0, squares, 1))
    return csr(counts.data / np.repeat(lengths, np.diff(counts.indptr)), counts.indices, counts.indptr, X.n_tokens)


def _activated(sums: Float32, activation: Activation) -> Float32:
    if activation == "relu":
        return np.maximum(sums, 0)
    if activation == "gelu":
        return np.asarray(0.5 * sums * (1 + erf(sums / np.float32(np.sqrt(2)))), np.float32)
    return sums
