"""Ridge regression of many labels on sparse rows, from one factorisation that all labels share."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from xcore.memory import need_memory
from xcore.numeric.cholesky import factorise, solve
from xcore.numeric.matrices import CSR, Float64, Int32
from xcore.numeric.parallel import SparseRows, even_blocks, over_blocks

GRAM_BLOCKS = 64


@dataclass(frozen=True)
class RidgeProblem:
    """The factorised matrix ``XᵀX - n x̄ x̄ᵀ + λ I``, and what a block of labels needs to be solved.

    Run its methods inside `single_threaded_blas`: then no bit depends on the number of threads.

    Attributes
    ----------
    factor : float64 (d, d)
        Cholesky factor in the upper triangle.
    x_mean : float64 (d,)
    y_mean : float64 (L,)
    features : CSR (d, n)
    targets : CSR (L, n)
    """

    factor: Float64
    x_mean: Float64
    y_mean: Float64
    features: CSR
    targets: CSR

    @classmethod
    def of(cls, X: CSR, Y: CSR, ridge: float) -> RidgeProblem:
        """Rows X (n, d) and targets Y (n, L). Cost O(n s² + d³/3) for s non-zeros per row."""
        n, d = X.shape
        need_memory(
            8 * d * d,
            f"the {d:,} x {d:,} matrix of a ridge regression",
            "Use fewer features, such as a smaller text.max_features, or another model, such as parabel.",
        )
        features = X.T.tocsr()
        x_mean = _row_sums(features) / max(n, 1)
        gram = _gram(features.T.tocsr(), features)
        for i in range(d):  # row by row, so that no second d x d matrix exists
            gram[i] -= n * x_mean[i] * x_mean
            gram[i, i] += ridge
        targets = Y.T.tocsr()
        return cls(factorise(gram), x_mean, _row_sums(targets) / max(n, 1), features, targets)

    def right_sides(self, labels: Int32) -> Float64:
        """``XᵀY - n x̄ ȳᵀ`` of a block of labels, one row per label (labels, d)."""
        n = self.features.shape[1]
        sides: Float64 = (self.features @ self.targets[labels].T.tocsr()).T.toarray().astype(np.float64, order="C")
        sides -= n * self.y_mean[labels][:, None] * self.x_mean
        return sides

    def solved(self, right_sides: Float64) -> Float64:
        """Weights (labels, d); the right-hand sides are overwritten. Cost O(2 d²) per label."""
        return solve(self.factor, right_sides)


def _row_sums(matrix: CSR) -> Float64:
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.bincount(row, weights=matrix.data, minlength=matrix.shape[0]).astype(np.float64)


def _gram(rows: CSR, features: CSR) -> Float64:
    """Upper triangle of XᵀX in float64, X by rows and by features; cost O(n s²) for s non-zeros per row."""
    d = rows.shape[1]
    out = np.zeros((d, d))
    plain, transposed = SparseRows.of(rows), SparseRows.of(features)
    # Feature i meets the features from i on: the first ones do more.
    cost = np.diff(features.indptr) * np.arange(d, 0, -1)
    over_blocks(
        lambda part: _add_products(part.start, part.stop, plain, transposed, out), even_blocks(cost, GRAM_BLOCKS)
    )
    return out


@numba.njit(cache=True, nogil=True)
def _add_products(start: int, stop: int, rows: SparseRows, features: SparseRows, out: Float64) -> None:
    """out[i, j] += x_ri x_rj over all rows r, for features i in [start, stop) and j >= i; row indices are sorted."""
    for i in range(start, stop):
        sums = out[i]
        for p in range(features.indptr[i], features.indptr[i + 1]):
            r, value = features.indices[p], np.float64(features.data[p])
            first, last = rows.indptr[r], rows.indptr[r + 1]
            for q in range(first + np.searchsorted(rows.indices[first:last], i), last):
                sums[rows.indices[q]] += value * rows.data[q]
