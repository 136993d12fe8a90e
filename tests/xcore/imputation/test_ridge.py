from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xcore.grouping import RandomGroups
from xcore.imputation.ridge import left_out, ridge_system
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


def test_left_out_groups_get_the_scores_of_a_fit_without_them() -> None:
    X, penalty = rows(), 0.7
    groups = RandomGroups(size=3).group(X, sp.csr_array((40, 1), dtype=np.float32), np.random.default_rng(0))
    system = ridge_system(X, np.arange(40), penalty, max_joint=100)
    folds = left_out(system, groups)
    targets = np.random.default_rng(1).random(40)
    dense = X.toarray().astype(np.float64)
    fitted = dense @ system.weights((dense.T @ targets).astype(np.float32)[None])[0]
    for group, members in enumerate(np.split(groups.members.indices, groups.members.indptr[1:-1])):
        size = len(members)
        matrix = folds.matrices[folds.first[group] :][: size**2].reshape(size, size)
        others = np.delete(dense, members, axis=0)
        normal = others.T @ others + penalty * np.eye(12)
        refitted = np.linalg.solve(normal, others.T @ np.delete(targets, members))
        without = targets[members] + matrix @ (fitted[members] - targets[members])
        np.testing.assert_allclose(without, dense[members] @ refitted, atol=1e-4)


def test_a_large_group_is_left_out_in_folds() -> None:
    X = rows(n=300)
    groups = RandomGroups(size=300).group(X, sp.csr_array((300, 1), dtype=np.float32), np.random.default_rng(0))
    folds = left_out(ridge_system(X, np.arange(300), 5.0, max_joint=4), groups)
    assert len(folds.matrices) == 256**2 + 44**2
    assert np.isfinite(folds.matrices).all()


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
    sums = np.random.default_rng(2).random((2, 12)).astype(np.float32)
    np.testing.assert_allclose(system.weights(sums.copy()), sums @ inverse, atol=1e-5)
