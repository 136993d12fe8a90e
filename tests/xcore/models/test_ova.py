from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.linalg
import scipy.sparse as sp
import threadpoolctl

from tests.blas import blas_threads
from xcore.components import silent
from xcore.errors import ConfigError, NotEnoughMemory
from xcore.metrics import evaluate
from xcore.models.ova import FittedOva, Ova
from xcore.models.parabel import Parabel
from xcore.numeric import ridge as ridge_module
from xcore.numeric.cholesky import factorise, solve
from xcore.numeric.matrices import NO_LABEL, binary_csr, csr, topk_of_dense
from xcore.numeric.parallel import single_threaded_blas
from xcore.numeric.ridge import RidgeProblem
from xcore.text.tfidf import Tfidf
from xcore.training.context import FitContext
from xcore.training.data import TrainingData


def plain(matrix: sp.csr_array) -> sp.csr_array:
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def random_data(n: int = 80, d: int = 30, n_labels: int = 17, seed: int = 0) -> TrainingData:
    rng = np.random.default_rng(seed)
    X = sp.csr_array(np.where(rng.random((n, d)) < 0.3, rng.standard_normal((n, d)), 0).astype(np.float32))
    Y = sp.csr_array(
        np.where(rng.random((n, n_labels)) < 0.15, rng.uniform(0.1, 1, (n, n_labels)), 0).astype(np.float32)
    )
    return TrainingData.of(plain(X), plain(Y))


def fit(data: TrainingData, **options: object) -> FittedOva:
    return Ova(**options).fit(data, FitContext(rng=np.random.default_rng(0)))


def ridge_with_intercept(X: np.ndarray, Y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """The same problem as an augmented least-squares fit whose last column, the intercept, is not penalised."""
    n, d = X.shape
    left = np.block([[X, np.ones((n, 1))], [np.sqrt(ridge) * np.eye(d), np.zeros((d, 1))]])
    solution = np.linalg.lstsq(left, np.vstack([Y, np.zeros((d, Y.shape[1]))]), rcond=None)[0]
    return solution[:-1], solution[-1]


@pytest.mark.parametrize("label_block", [1, 5, 100])
def test_weights_solve_the_ridge_problem_with_a_free_intercept(label_block: int) -> None:
    data = random_data()
    model = fit(data, ridge=0.7, prune=0, normalise=False, label_block=label_block)
    W, b = ridge_with_intercept(data.X.toarray().astype(float), data.Y.toarray().astype(float), 0.7)
    np.testing.assert_allclose(model.weights.toarray(), W[:, model.labels], atol=1e-5)
    np.testing.assert_allclose(model.intercept, b[model.labels], atol=1e-5)


def test_predictions_are_the_dense_product_s_best() -> None:
    data = random_data(n=300)
    model = fit(data, prune=0)
    X = data.X.toarray() / np.linalg.norm(data.X.toarray(), axis=1, keepdims=True).clip(1e-9)
    expected = topk_of_dense(X @ model.weights.toarray() + model.intercept, 6)
    top = model.predict_topk(data.X, 6)
    assert (
        top.labels == model.labels[expected.labels]
    ).mean() > 0.999  # float32 sums in another order may swap near ties
    np.testing.assert_allclose(top.scores, expected.scores, atol=1e-5)


def test_pruning_keeps_the_large_weights_unchanged() -> None:
    data = random_data()
    every, some = fit(data, prune=0), fit(data, prune=0.05)
    all_weights, kept = every.weights.toarray(), some.weights.toarray()
    large = np.abs(all_weights) >= 0.05
    assert 0 < large.sum() < large.size
    np.testing.assert_array_equal(kept, np.where(large, all_weights, 0))
    assert some.weights.nnz == large.sum()


def test_pruned_scorers_still_have_the_training_mean() -> None:
    """The intercept is set after pruning, so that no label's average score drifts."""
    data = random_data()
    model = fit(data, prune=0.1, normalise=False)
    scores = data.X.toarray() @ model.weights.toarray() + model.intercept
    np.testing.assert_allclose(scores.mean(axis=0), data.Y.toarray().mean(axis=0)[model.labels], atol=1e-5)


def test_ties_go_to_the_lower_label_and_unseen_labels_are_not_offered() -> None:
    X = plain(sp.csr_array(np.eye(2, dtype=np.float32)))
    Y = plain(sp.csr_array(np.array([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], np.float32)))
    model = fit(TrainingData.of(X, Y))
    assert model.predict_topk(X, 5).labels.tolist() == [[1, 3, 4, 0, NO_LABEL], [0, 1, 3, 4, NO_LABEL]]
    assert model.predict_topk(X, 2).labels.tolist() == [[1, 3], [0, 1]]


def test_rows_without_features_get_the_most_frequent_labels() -> None:
    data = random_data(n=400)
    top = fit(data, ridge=100.0).predict_topk(plain(sp.csr_array((1, 30), dtype=np.float32)), 3)
    mean = data.Y.toarray().mean(axis=0)
    assert set(top.labels[0].tolist()) == set(np.argsort(-mean)[:3].tolist())


def test_scaling_the_rows_changes_nothing_when_rows_are_normalised() -> None:
    data = random_data()
    scaled = TrainingData.of(plain(sp.csr_array(data.X * np.float32(8))), data.Y)
    np.testing.assert_array_equal(fit(data).weights.toarray(), fit(scaled).weights.toarray())


def test_factors_and_solutions_are_computed_on_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some 400 features on, two BLAS threads round otherwise than one; float32 weights would hide most of it."""
    seen: list[int] = []

    def watched(routine: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def call(*arguments: np.ndarray) -> np.ndarray:
            seen.extend(blas_threads())
            return routine(*arguments)

        return call

    monkeypatch.setattr(ridge_module, "factorise", watched(factorise))
    monkeypatch.setattr(ridge_module, "solve", watched(solve))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        fit(random_data(), label_block=5)
    assert set(seen) == {1}


def test_support_vector_machines_are_a_label_tree_of_one_level() -> None:
    data, options = random_data(n=300), {"ridge": 0.25, "prune": 0.05}
    flat = fit(data, loss="squared_hinge", **options)
    tree = Parabel(depth=0, cost=2.0, prune_below=0.05).fit(data, FitContext(rng=np.random.default_rng(0)))
    rows = random_data(n=300, seed=1).X
    found, expected = flat.predict_topk(rows, 17), tree.predict_topk(rows, 17)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(1 / (1 + np.exp(-tree.sharpness[1] * found.scores)), expected.scores, rtol=1e-5)


def test_too_many_features_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="parabel"):
        fit(random_data(), max_features=29)


def test_rows_of_another_width_are_refused() -> None:
    model = fit(random_data())
    with pytest.raises(ConfigError, match="30 features, got rows with 31"):
        model.predict_topk(plain(sp.csr_array((1, 31), dtype=np.float32)), 1)
    with pytest.raises(ConfigError, match="at least 1"):
        model.predict_topk(random_data().X, 0)


def test_cholesky_solves_as_scipy_does() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((40, 40))
    matrix, targets = half @ half.T + np.eye(40), rng.standard_normal((3, 40))
    expected = scipy.linalg.solve(matrix, targets.T, assume_a="pos").T
    with single_threaded_blas():
        factor = factorise(np.triu(matrix))
        np.testing.assert_allclose(np.triu(factor), scipy.linalg.cholesky(matrix), atol=1e-12)
        np.testing.assert_allclose(solve(factor, targets.copy()), expected, atol=1e-9)


def test_cholesky_refuses_what_it_cannot_do_in_place_or_at_all() -> None:
    with pytest.raises(ConfigError, match="not positive definite"):
        factorise(-np.eye(3))
    with pytest.raises(ValueError, match="C order"):
        factorise(np.asfortranarray(np.arange(9.0).reshape(3, 3)))


DATA = Path(os.environ.get("XC_DATA", Path(__file__).parents[3].parent / "shared" / "data")) / "eurlex57k"


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "test.parquet").exists(), reason="EURLEX57K is not in $XC_DATA or ../shared/data")
def test_eurlex57k_is_classified_as_well_as_a_plain_ridge_does() -> None:
    parts = {name: pq.read_table(DATA / f"{name}.parquet") for name in ("train", "test")}
    names = sorted({label for part in parts.values() for labels in part["labels"].to_pylist() for label in labels})
    ids = {name: i for i, name in enumerate(names)}
    text = Tfidf().fit([parts["train"]["text"].to_pylist()], silent)
    X = {name: text.transform(part["text"].to_pylist()) for name, part in parts.items()}
    Y = {}
    for name, part in parts.items():
        rows = [sorted({ids[label] for label in labels}) for labels in part["labels"].to_pylist()]
        Y[name] = binary_csr(np.concatenate(rows), np.cumsum([0] + [len(row) for row in rows]), len(names))
    top = fit(TrainingData.of(X["train"], Y["train"])).predict_topk(X["test"], 5)
    counts = np.bincount(Y["train"].indices, minlength=len(names))
    result = evaluate(
        top, Y["test"], train_counts=counts, n_train=len(parts["train"]), n_bootstrap=0, rng=np.random.default_rng(0)
    )
    assert result.metrics["precision_at_1"] >= 0.900
    assert result.metrics["precision_at_3"] >= 0.790
    assert result.metrics["precision_at_5"] >= 0.655


def test_a_matrix_that_does_not_fit_is_refused_before_it_is_made() -> None:
    rows = sp.csr_array(([1.0], ([0], [7])), shape=(2, 5_000_000), dtype=np.float32)
    with pytest.raises(NotEnoughMemory, match=r"5,000,000 x 5,000,000 matrix .* text\.max_features"):
        RidgeProblem.of(rows, sp.csr_array((2, 3), dtype=np.float32), 1.0)
