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
    weights, intercepts = system.weights((X.T @ targets).T.copy(), targets.sum(axis=0))
    np.testing.assert_allclose(weights, expected.T, atol=1e-5)
    assert not intercepts.any()


def test_left_out_groups_get_the_scores_of_a_fit_without_them() -> None:
    X, penalty = rows(), 0.7
    groups = RandomGroups(size=3).group(X, sp.csr_array((40, 1), dtype=np.float32), np.random.default_rng(0))
    system = ridge_system(X, np.arange(40), penalty, max_joint=100)
    folds = left_out(system, groups)
    targets = np.random.default_rng(1).random(40)
    dense = X.toarray().astype(np.float64)
    weights, _ = system.weights((dense.T @ targets).astype(np.float32)[None], np.array([targets.sum()]))
    fitted = dense @ weights[0]
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
    part = X[counted]
    whole, half = ridge_system(X, counted, 1.0, 100), ridge_system(part, np.arange(20), 1.0, 100)
    np.testing.assert_allclose(whole.inverse, half.inverse, rtol=1e-5)


def test_features_beyond_the_limit_count_as_uncorrelated_around_their_mean() -> None:
    X, penalty = rows(), 0.5
    system = ridge_system(X, np.arange(40), penalty, max_joint=5)
    dense = X.toarray().astype(np.float64)
    order = np.argsort(-(dense**2).sum(axis=0), kind="stable")
    centred = dense[:, order]
    centred[:, 5:] -= centred[:, 5:].mean(axis=0)
    approximated = np.diag((centred**2).sum(axis=0))
    approximated[:5, :5] = centred[:, :5].T @ centred[:, :5]
    inverse = np.linalg.inv(approximated + penalty * np.eye(12))
    targets = np.random.default_rng(2).random((40, 2))
    weights, intercepts = system.weights((targets.T @ dense[:, order]).astype(np.float32), targets.sum(axis=0))
    fitted = dense[:, order] @ weights.T + intercepts
    np.testing.assert_allclose(fitted, centred @ inverse @ centred.T @ targets, atol=1e-4)
    groups = RandomGroups(size=3).group(X, sp.csr_array((40, 1), dtype=np.float32), np.random.default_rng(0))
    members = groups.members.indices[:3]
    matrix = left_out(system, groups).matrices[:9].reshape(3, 3)
    np.testing.assert_allclose(
        np.linalg.inv(matrix), np.eye(3) - centred[members] @ inverse @ centred[members].T, atol=1e-4
    )
