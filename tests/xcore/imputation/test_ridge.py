from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.imputation.ridge import ridge_system
from xcore.matrices import CSR, csr


def rows(n: int = 40, d: int = 12, seed: int = 0) -> CSR:
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, d)


def test_weights_solve_the_ridge_equations() -> None:
    X = rows()
    system = ridge_system(X, np.arange(40), 0.7, max_joint=100)
    targets = np.random.default_rng(1).random((40, 3)).astype(np.float32)
    dense = X.toarray().astype(np.float64)
    expected = np.linalg.solve(dense.T @ dense + 0.7 * np.eye(12), dense.T @ targets)
    np.testing.assert_allclose(system.weights((X.T @ targets).T.copy()), expected.T, atol=1e-5)


def test_taking_out_the_own_target_gives_the_score_of_a_fit_without_the_row() -> None:
    X, penalty = rows(), 0.7
    system = ridge_system(X, np.arange(40), penalty, max_joint=100)
    targets = np.random.default_rng(1).random(40)
    dense = X.toarray().astype(np.float64)
    weights = system.weights((dense.T @ targets).astype(np.float32)[None])[0]
    without_own = (dense @ weights - system.leverage * targets) / (1 - system.leverage)
    for row in range(40):
        others = np.delete(dense, row, axis=0)
        refitted = np.linalg.solve(others.T @ others + penalty * np.eye(12), others.T @ np.delete(targets, row))
        assert without_own[row] == pytest.approx(dense[row] @ refitted, abs=1e-4)


def test_rows_that_do_not_count_do_not_enter_the_system() -> None:
    X = rows()
    counted = np.arange(0, 40, 2)
    part = csr(*(lambda kept: (kept.data, kept.indices, kept.indptr))(X[counted]), 12)
    whole, half = ridge_system(X, counted, 1.0, 100), ridge_system(part, np.arange(20), 1.0, 100)
    np.testing.assert_allclose(whole.inverse, half.inverse, rtol=1e-5)


def test_features_beyond_the_limit_count_as_uncorrelated() -> None:
    X, penalty = rows(), 0.5
    system = ridge_system(X, np.arange(40), penalty, max_joint=5)
    dense = X.toarray().astype(np.float64)
    gram = dense.T @ dense
    order = np.argsort(-np.diag(gram), kind="stable")
    approximated = np.diag(np.diag(gram)[order])
    approximated[:5, :5] = gram[np.ix_(order[:5], order[:5])]
    inverse = np.linalg.inv(approximated + penalty * np.eye(12))
    np.testing.assert_allclose(system.inverse, inverse[:5, :5], atol=1e-5)
    np.testing.assert_allclose(system.rest, np.diag(inverse)[5:], rtol=1e-5)
    np.testing.assert_allclose(system.leverage, np.sum(dense[:, order] @ inverse * dense[:, order], axis=1), rtol=1e-4)
    sums = np.random.default_rng(2).random((2, 12)).astype(np.float32)
    np.testing.assert_allclose(system.weights(sums.copy()), sums @ inverse, atol=1e-5)
