"""How the chosen labels stand for all others, and which labels they do not stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from xcore.numeric.matrices import CSR, Float64, Int32

EXACT = 1e-6  # a relative error below this is rounding


@dataclass(frozen=True)
class Reconstruction:
    """``Y ~ Y_S Z_S``.

    Attributes
    ----------
    coefficients : CSR float64 (L, k)
        Row j is the column of Z_S of label j. The rows of the chosen labels are unit vectors.
    errors : float64 (L,)
        ``|y_j - Y_S z_j| / |y_j|``: 0 is exact, 1 is nothing. 0 for labels without rows.
    """

    coefficients: CSR
    errors: Float64

    def outliers(self, limit: float) -> Int32:
        """Labels with an error above the limit."""
        found: Int32 = np.flatnonzero(self.errors > limit).astype(np.int32)
        return found


def reconstruction_of(coefficients: CSR, products: CSR, chosen: Int32) -> Reconstruction:
    """A map from coefficients of any kind (L, k); chosen labels stand for themselves. `products` is Y'Y."""
    fixed = _with_unit_rows(coefficients, chosen)
    cross = products[:, chosen]
    squares = np.asarray(products.diagonal(), np.float64)
    left = squares - 2 * _row_dots(fixed, cross) + _row_dots(fixed, (fixed @ cross[chosen]).tocsr())
    errors = np.sqrt(np.maximum(left, 0.0) / np.maximum(squares, np.finfo(np.float64).tiny))
    errors[(errors < EXACT) | (squares == 0)] = 0.0
    errors[chosen] = 0.0
    return Reconstruction(fixed, errors)


def least_squares_coefficients(products: CSR, chosen: Int32) -> CSR:
    """``pinv(Y_S) Y``, dense (L, k): the best linear map from S. Cost O(k^3 + k^2 L)."""
    cross = products[:, chosen].toarray()
    return sp.csr_array(cross @ np.linalg.pinv(cross[chosen], rcond=1e-10, hermitian=True))


def chosen_columns(coefficients: CSR, chosen: Int32) -> CSR:
    """The part of a self-representation (L, L) that uses chosen labels (L, k)."""
    part: CSR = coefficients[:, chosen]
    return part


def _with_unit_rows(coefficients: CSR, chosen: Int32) -> CSR:
    entries = coefficients.tocoo()
    is_chosen = np.zeros(coefficients.shape[0], bool)
    is_chosen[chosen] = True
    kept = ~is_chosen[entries.row] & (entries.data != 0)
    rows, columns = np.append(entries.row[kept], chosen), np.append(entries.col[kept], np.arange(len(chosen)))
    values = np.append(entries.data[kept], np.ones(len(chosen)))
    fixed: CSR = sp.csr_array((values, (rows, columns)), shape=coefficients.shape)
    return fixed


def _row_dots(left: CSR, right: CSR) -> Float64:
    """Inner product of each row of one matrix with the same row of another."""
    sums: Float64 = np.asarray(left.multiply(right).sum(axis=1), np.float64).reshape(-1)
    return sums
