"""Ridge regression of many labels at once on sparse rows, with the scores each row would get without its own target."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.errors import ConfigError
from xcore.kernels import SparseRows, over_blocks, single_threaded_blas
from xcore.matrices import CSR, Float32, Float64, Int64

_GRAM_BLOCKS = 32


class RidgeSystem(NamedTuple):
    """The part of a ridge regression that all labels share: ``A = X'X + mu I`` over the rows that count.

    Attributes
    ----------
    X : the rows, columns reordered so that those of most energy come first.
    inverse : float32 (h, h)
        Inverse of A over the first h columns.
    rest : float32 (d - h,)
        Inverse of the diagonal of A over the others, which count as uncorrelated. With d <= h nothing is left out.
    leverage : float64 (n,)
        ``x_i' A^-1 x_i``: how much of its own target a row gets back as its score.
    """

    X: SparseRows
    inverse: Float32
    rest: Float32
    leverage: Float64

    @property
    def n_features(self) -> int:
        return len(self.inverse) + len(self.rest)

    def weights(self, sums: Float32) -> Float32:
        """``A^-1 b`` for each row b of `sums` (labels, d); overwrites `sums`. Cost O(labels h^2)."""
        h = len(self.inverse)
        sums[:, :h] = sums[:, :h] @ self.inverse
        sums[:, h:] *= self.rest
        return sums


def ridge_system(X: CSR, counted: Int64, penalty: float, max_joint: int) -> RidgeSystem:
    """Factor the system once for all labels.

    Cost O(nnz(X) nnz(row) + h^3) with h = min(d, max_joint); memory O(nnz(X) + h^2) float32.

    Parameters
    ----------
    X : CSR float32 (n, d)
    counted : rows that take part in the regression; the others only get scores.
    penalty : mu, in units of a row's squared length.
    max_joint : the most features whose correlations are kept.
    """
    import scipy.linalg

    taking_part = np.zeros(X.shape[0], bool)
    taking_part[counted] = True
    kept = np.repeat(taking_part, np.diff(X.indptr))
    energy = np.bincount(X.indices[kept], X.data[kept].astype(np.float64) ** 2, X.shape[1])
    h = min(X.shape[1], max_joint)
    order = np.argsort(-energy, kind="stable") if h < X.shape[1] else np.arange(X.shape[1])
    position = np.empty(X.shape[1], np.int32)
    position[order] = np.arange(X.shape[1], dtype=np.int32)
    rows = SparseRows(SparseRows.of(X).data, position[X.indices], X.indptr.astype(np.int64))
    gram = np.zeros((h, h), np.float32)
    cuts = np.linspace(0, h, _GRAM_BLOCKS + 1).astype(np.int64)
    over_blocks(lambda b: _add_gram(rows, taking_part, cuts[b], cuts[b + 1], gram), range(_GRAM_BLOCKS))
    gram[np.diag_indices(h)] += np.float32(penalty)
    with single_threaded_blas():
        factor, failed = scipy.linalg.lapack.spotrf(gram.T, lower=1, overwrite_a=1)
        inverse, failed_too = scipy.linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    if failed or failed_too:
        raise ConfigError(f"X'X + {penalty} I could not be factored: raise the penalty")
    inverse = inverse.T
    _mirror(inverse)
    rest = (1.0 / (energy[order[h:]] + penalty)).astype(np.float32)
    leverage = np.empty(X.shape[0])
    blocks = np.array_split(np.arange(X.shape[0]), 64)
    over_blocks(lambda block: _leverages(rows, inverse, rest, block, leverage), blocks)
    return RidgeSystem(rows, inverse, rest, leverage)


@numba.njit(cache=True, nogil=True)
def _add_gram(X: SparseRows, taking_part: Int64, start: int, stop: int, gram: Float32) -> None:
    """Add the rows ``start <= a < stop`` of X'X, as far as a <= b, over the leading columns."""
    h = len(gram)
    for row in range(len(taking_part)):
        if not taking_part[row]:
            continue
        for first in range(X.indptr[row], X.indptr[row + 1]):
            a = X.indices[first]
            if a < start or a >= stop:
                continue
            for second in range(X.indptr[row], X.indptr[row + 1]):
                b = X.indices[second]
                if a <= b and b < h:
                    gram[a, b] += X.data[first] * X.data[second]


@numba.njit(cache=True, nogil=True)
def _mirror(matrix: Float32) -> None:
    """Copy the upper triangle to the lower one."""
    for a in range(len(matrix)):
        for b in range(a):
            matrix[a, b] = matrix[b, a]


@numba.njit(cache=True, nogil=True)
def _leverages(X: SparseRows, inverse: Float32, rest: Float32, rows: Int64, leverage: Float64) -> None:
    h = len(inverse)
    for row in rows:
        total = 0.0
        for first in range(X.indptr[row], X.indptr[row + 1]):
            a = X.indices[first]
            if a >= h:
                total += X.data[first] * X.data[first] * rest[a - h]
                continue
            half = 0.5 * X.data[first] * inverse[a, a]
            for second in range(X.indptr[row], first):
                if X.indices[second] < h:
                    half += X.data[second] * inverse[a, X.indices[second]]
            total += 2.0 * X.data[first] * half
        leverage[row] = total
