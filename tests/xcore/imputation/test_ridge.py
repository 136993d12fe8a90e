from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.heldout import Judge
from xcore.imputation.ridge import LeftOut, RidgeSystem, left_out, ridge_system, sketch_rows
from xcore.numeric import cholesky
from xcore.numeric.matrices import CSR, csr, normalise_rows


def csr_of(dense: npt.NDArray[np.float32]) -> CSR:
    matrix = sp.csr_array(dense)
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def left_out_of(system: RidgeSystem, groups: Groups) -> LeftOut:
    return left_out(system.rest, sketch_rows(system), groups)


def rows(n: int = 40, d: int = 12, seed: int = 0) -> CSR:
    rng = np.random.default_rng(seed)
    return csr_of((rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32))


def inverse_of(X: CSR, penalty: float) -> npt.NDArray[np.float64]:
    dense = X.toarray().astype(np.float64)
    inverse: npt.NDArray[np.float64] = np.linalg.inv(dense.T @ dense + penalty * np.eye(X.shape[1]))
    return inverse


def test_the_factor_solves_the_ridge_equations() -> None:
    X = rows()
    system = ridge_system(X, np.arange(40), 0.7, max_joint=100)
    targets = np.random.default_rng(1).random((40, 3)).astype(np.float32)
    weights = cholesky.solve(system.factor, np.ascontiguousarray((X.T @ targets).T))
    np.testing.assert_allclose(weights.T, inverse_of(X, 0.7) @ (X.T @ targets), atol=1e-5)


def test_sketches_of_few_features_are_exact() -> None:
    X = rows()
    sketch = sketch_rows(ridge_system(X, np.arange(40), 0.7, max_joint=100))
    np.testing.assert_allclose(sketch @ sketch.T, X @ inverse_of(X, 0.7) @ X.T.toarray(), atol=1e-5)


def test_sketches_of_many_features_are_off_by_no_more_than_chance() -> None:
    X = normalise_rows(rows(n=60, d=1500))
    sketch = sketch_rows(ridge_system(X, np.arange(60), 0.7, max_joint=1500))
    exact = X @ inverse_of(X, 0.7) @ X.T.toarray()
    lengths = np.sqrt(np.diag(exact))
    error = (sketch @ sketch.T - exact) / np.outer(lengths, lengths)
    assert sketch.shape == (60, 1024)
    assert 0 < np.abs(error).mean() < 2 / np.sqrt(1024)


def test_left_out_groups_get_the_scores_of_a_fit_without_them() -> None:
    X, penalty = rows(), 0.7
    groups = RandomGroups(size=3).group(X, sp.csr_array((40, 1), dtype=np.float32), np.random.default_rng(0))
    folds = left_out_of(ridge_system(X, np.arange(40), penalty, max_joint=100), groups)
    targets = np.random.default_rng(1).random(40)
    dense = X.toarray().astype(np.float64)
    fitted = dense @ inverse_of(X, penalty) @ dense.T @ targets
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
    folds = left_out_of(ridge_system(X, np.arange(300), 5.0, max_joint=4), groups)
    assert len(folds.matrices) == 256**2 + 44**2
    assert np.isfinite(folds.matrices).all()


def test_rows_that_do_not_count_do_not_enter_the_system() -> None:
    X = rows()
    counted = np.arange(0, 40, 2)
    part = X[counted]
    whole, half = ridge_system(X, counted, 1.0, 100), ridge_system(part, np.arange(20), 1.0, 100)
    np.testing.assert_allclose(np.triu(whole.factor), np.triu(half.factor), rtol=1e-5)


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
    expected = centred @ inverse @ centred.T
    targets = np.random.default_rng(2).random((2, 40)).astype(np.float32)
    scores = Judge(system, np.arange(40)).scores(csr_of(targets))
    np.testing.assert_allclose(scores, expected @ targets.T, atol=1e-4)
    groups = RandomGroups(size=3).group(X, sp.csr_array((40, 1), dtype=np.float32), np.random.default_rng(0))
    members = groups.members.indices[:3]
    matrix = left_out_of(system, groups).matrices[:9].reshape(3, 3)
    np.testing.assert_allclose(np.linalg.inv(matrix), np.eye(3) - expected[np.ix_(members, members)], atol=1e-4)
