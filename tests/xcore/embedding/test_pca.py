"""Principal components against numpy's decomposition, and what must not change their bits."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from xcore.embedding.pca import FittedPca, Pca
from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, csr, row_blocks
from xcore.numeric.products import product_of_rows


def dense_rows(n: int = 300, d: int = 6) -> np.ndarray:
    """Correlated features of very different sizes, far from 0."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return (mixed * 10.0 ** np.arange(d) + 100).astype(np.float32)


def sparse_rows(n: int = 400, d: int = 90, rank: int = 5) -> CSR:
    """A few topics with words of their own, of falling variance, and a little noise."""
    rng = np.random.default_rng(1)
    X = np.zeros((n, d), np.float32)
    for topic in range(rank):
        on = rng.random(n) < 0.3
        X[on, topic * 10 : topic * 10 + 10] += rng.uniform(0.5, 1.5, (on.sum(), 10)) * 0.7**topic
    X[rng.random((n, d)) < 0.01] += 0.05
    return sp.csr_array(X)


def fitted(options: Pca, X: object, block: int = 128) -> FittedPca:
    return options.fit_blocks([X[part] for part in row_blocks(X.shape[0], block)], np.random.default_rng(3))


def leading(covariance: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(covariance)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def test_dense_scores_are_the_whitened_components_of_the_correlation() -> None:
    X = dense_rows()
    pca = fitted(Pca(dimensions=3, whiten=True), X)
    values, vectors = leading(np.corrcoef(X.T.astype(np.float64)), 3)
    standard = (X - X.mean(axis=0, dtype=np.float64)) / X.std(axis=0, ddof=1, dtype=np.float64)
    expected, scores = standard @ vectors / np.sqrt(values), pca.transform(X)
    assert scores.dtype == np.float32
    assert np.allclose(np.abs(scores), np.abs(expected), atol=1e-3)
    assert np.allclose(np.cov(scores.T), np.eye(3), atol=1e-3)
    assert np.allclose(pca.variances, values, rtol=1e-4)


def test_sparse_scores_are_components_of_the_covariance_unscaled() -> None:
    X = sparse_rows()
    scores = fitted(Pca(dimensions=4, normalise=False), X).transform(X)
    dense = X.toarray().astype(np.float64)
    _, vectors = leading(np.cov(dense.T), 4)
    assert np.allclose(np.abs(scores), np.abs((dense - dense.mean(axis=0)) @ vectors), atol=1e-4)


def test_the_randomised_search_finds_the_leading_components() -> None:
    X = sparse_rows()
    exact = fitted(Pca(dimensions=5, whiten=True), X)
    searched = fitted(Pca(dimensions=5, exact_features=10, oversampling=10, whiten=True), X)
    assert np.allclose(searched.variances, exact.variances, rtol=1e-3)
    same = np.abs(np.sum(searched.transform(X) * exact.transform(X), axis=0)) / (X.shape[0] - 1)
    assert same == pytest.approx(np.ones(5), abs=1e-2)


@pytest.mark.parametrize("exact_features", [10, 100])
def test_the_cut_into_blocks_changes_no_more_than_rounding(exact_features: int) -> None:
    X, options = sparse_rows(), Pca(dimensions=5, exact_features=exact_features)
    whole, cut = fitted(options, X, 400), fitted(options, X, 37)
    assert np.allclose(whole.components, cut.components, atol=1e-5)
    parts = [whole.transform(X[:77]), whole.transform(X[77:])]
    assert np.array_equal(whole.transform(X), np.concatenate(parts)), "a row's scores depend on it alone"


@pytest.mark.parametrize("exact_features", [10, 100])
def test_one_thread_and_two_give_the_same_bits(exact_features: int) -> None:
    X, before, found = sparse_rows(1500), numba.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
            pca = fitted(Pca(dimensions=5, exact_features=exact_features), X)
            found.append((pca.components, pca.transform(X)))
    finally:
        numba.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_constant_and_repeated_features_become_zeros_and_not_nan() -> None:
    X = dense_rows()
    bent = np.hstack([X, np.full((len(X), 1), 7.0, np.float32), X[:, :1]])
    scores = fitted(Pca(dimensions=8, whiten=True), bent).transform(bent)
    assert np.isfinite(scores).all()
    assert (np.abs(scores[:, 6:]) == 0).all()
    assert np.allclose(scores[:, :6].var(axis=0, ddof=1), 1, atol=1e-3)


def test_components_of_components_are_the_first_ones_in_order() -> None:
    X = dense_rows()
    scores = fitted(Pca(dimensions=6, whiten=True), X).transform(X)
    again = fitted(Pca(dimensions=2, whiten=True), scores).transform(scores)
    assert np.allclose(again, scores[:, :2], atol=1e-4)


def test_a_saved_projection_gives_the_same_bits(tmp_path: Path) -> None:
    X = sparse_rows()
    pca = fitted(Pca(dimensions=3, whiten=True), X)
    pca.save(tmp_path)
    assert (tmp_path / "embedding.json").exists()
    assert np.array_equal(FittedPca.load(tmp_path).transform(X), pca.transform(X))


def test_what_cannot_be_fitted_or_projected_is_refused() -> None:
    X = sparse_rows()
    with pytest.raises(ConfigError, match="not an iterator"):
        Pca().fit_blocks(iter([X]), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="at least 2 rows, got 1"):
        Pca().fit_blocks([X[:1]], np.random.default_rng(0))
    with pytest.raises(ConfigError, match="no block"):
        Pca().fit_blocks([], np.random.default_rng(0))
    with pytest.raises(ConfigError, match="fitted to 90 features, got rows of 6"):
        fitted(Pca(dimensions=3), X).transform(dense_rows())


@pytest.mark.parametrize(("d", "m"), [(1, 1), (7, 3), (130, 131)])
def test_a_product_of_rows_does_not_depend_on_neighbours(d: int, m: int) -> None:
    rng = np.random.default_rng(d)
    left, right = rng.normal(size=(70, d)).astype(np.float32), rng.normal(size=(m, d)).astype(np.float32)
    whole = product_of_rows(left, right)
    assert np.allclose(whole, left.astype(np.float64) @ right.T.astype(np.float64), atol=1e-4)
    for row in (0, 5, 69):
        assert np.array_equal(product_of_rows(left[row : row + 1], right)[0], whole[row])


def test_the_length_of_a_sparse_row_does_not_change_its_components() -> None:
    X = sparse_rows()
    longer = csr(X.data * 7, X.indices, X.indptr, X.shape[1])
    pca = fitted(Pca(dimensions=5), X)
    assert np.allclose(pca.transform(X), pca.transform(longer), atol=1e-6)
    assert np.allclose(fitted(Pca(dimensions=5), longer).components, pca.components, atol=1e-5)
