"""Small label matrices."""

import numpy as np
import scipy.sparse as sp

from xcore.numeric.matrices import CSR, Float64, csr


def sparse(Y: Float64) -> CSR:
    matrix = sp.csr_array(Y)
    return csr(matrix.data, matrix.indices, matrix.indptr, Y.shape[1])


def related(n: int = 200, n_labels: int = 30, seed: int = 0) -> Float64:
    """Random binary labels; the last half copy one of the first five in most rows."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, n_labels)) < 0.15).astype(np.float64)
    for label in range(n_labels // 2, n_labels):
        is_copied = rng.random(n) < 0.8
        Y[is_copied, label] = Y[is_copied, label % 5]
    return Y


def planted(n: int = 400, seed: int = 0) -> Float64:
    """Four parents (0 to 3), three children of each (4 to 15), and six independent labels (16 to 21)."""
    rng = np.random.default_rng(seed)
    parents = (rng.random((n, 4)) < 0.2).astype(np.float64)
    children = [parents[:, child // 3] * (rng.random(n) < 0.9) for child in range(12)]
    independent = (rng.random((n, 6)) < 0.05).astype(np.float64)
    return np.column_stack([parents, *children, independent])
