"""The whole selection: scores, reconstruction, outliers, and what is kept of it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.xcore.selection.label_matrices import planted, related, sparse
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.selection.dictionary import label_products
from xcore.selection.options import LabelSelection
from xcore.selection.reconstruction import least_squares_coefficients, reconstruction_of
from xcore.selection.scores import prediction_scores
from xcore.selection.selected import FittedSelection
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, TrainingData


def features(Y: np.ndarray, seed: int = 0) -> np.ndarray:
    """Noise, and a feature for each of the first labels."""
    rng = np.random.default_rng(seed)
    X = rng.random((len(Y), 12)) * (rng.random((len(Y), 12)) < 0.4)
    X[:, :4] += Y[:, :4]
    return X


def data_of(Y: np.ndarray, names: bool = False) -> TrainingData:
    labels = LabelSide([f"label {number}" for number in range(Y.shape[1])]) if names else None
    return TrainingData.of(sparse(features(Y)), sparse(Y), labels=labels)


def selected(Y: np.ndarray, **options: object) -> FittedSelection:
    return LabelSelection.model_validate(options).fit(data_of(Y), FitContext())


def test_scores_are_the_share_of_variance_that_a_ridge_regression_explains() -> None:
    Y, mu = planted(), 0.7
    X = features(Y)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    centred, targets = rows - rows.mean(axis=0), Y - Y.mean(axis=0)
    weights = np.linalg.solve(centred.T @ centred + mu * np.eye(12), centred.T @ targets)
    errors = np.sum((targets - centred @ weights) ** 2, axis=0)
    found = prediction_scores(sparse(X), sparse(Y), mu, 100, "fit")
    np.testing.assert_allclose(found, 1 - errors / np.sum(targets**2, axis=0), atol=1e-5)
    assert found[:4].min() > found[16:].max()
    by_error = prediction_scores(sparse(X), sparse(Y), mu, 100, "residual")
    np.testing.assert_allclose(by_error, errors.max() - errors, atol=1e-3)


def test_scores_use_the_strongest_features_alone_if_there_are_many() -> None:
    Y = planted()
    X = features(Y)
    X[:, :4] += 0.1
    X[:, 4:] *= 1e-3
    scores = [prediction_scores(sparse(X), sparse(Y), 1.0, n_features, "fit") for n_features in (12, 4, 1)]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-3)
    assert np.sort(scores[2][:4])[-2] < 0.5 * np.sort(scores[0][:4])[0], "one feature explains one of the labels"


def test_all_labels_in_the_budget_are_reconstructed_exactly() -> None:
    Y = related()
    found = selected(Y, budget=30, error_weight=5.0)
    assert len(found.chosen) == 30
    assert not found.errors.any()
    assert not len(found.outliers)
    Z = found.coefficients.toarray().T
    assert np.array_equal(Y[:, found.chosen] @ Z, Y)


@pytest.mark.parametrize("way", ["sparse", "least_squares", "rows"])
def test_errors_are_those_of_the_map_and_outliers_are_above_the_limit(way: str) -> None:
    Y = planted()
    found = selected(Y, budget=4, reconstruction=way, outlier_above=0.7, score_weight=0.0, error_weight=0.5)
    assert sorted(found.chosen.tolist()) == [0, 1, 2, 3]
    Z = found.coefficients.toarray().T
    assert np.array_equal(Z[:, found.chosen], np.eye(4))
    errors = np.linalg.norm(Y - Y[:, found.chosen] @ Z, axis=0) / np.linalg.norm(Y, axis=0)
    np.testing.assert_allclose(found.errors, errors, atol=1e-7)
    assert found.outliers.tolist() == list(range(16, 22))
    assert found.trained.tolist() == [0, 1, 2, 3, *range(16, 22)]


def test_least_squares_is_the_best_linear_map() -> None:
    Y, chosen = related(), np.array([1, 4, 20], np.int32)
    products = label_products(sparse(Y))
    found = reconstruction_of(least_squares_coefficients(products, chosen), products, chosen)
    expected = np.linalg.lstsq(Y[:, chosen], Y, rcond=None)[0]
    np.testing.assert_allclose(found.coefficients.toarray().T, expected, atol=1e-9)


def test_labels_without_rows_have_no_role_in_training() -> None:
    Y = planted()
    Y[:, [5, 20]] = 0
    found = selected(Y, budget=22)
    assert not {5, 20} & set(found.trained.tolist())
    assert [found.role_of_each()[label] for label in (5, 20)] == ["no rows", "no rows"]


def test_the_score_needs_rows_of_numbers() -> None:
    texts = TrainingData.of(["one", "two", "three"], np.eye(3))
    with pytest.raises(ConfigError, match=r"rows are text\. Set selection\.score_weight: 0"):
        LabelSelection(score_weight=1.0).fit(texts, FitContext())
    assert len(LabelSelection(score_weight=0.0).fit(texts, FitContext()).chosen) == 3


def test_progress_reports_residual_and_objective_and_ends_complete() -> None:
    seen: list[tuple[int, int, dict[str, float]]] = []

    def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        seen.append((step, total, dict(metrics or {})))

    LabelSelection(budget=4).fit(data_of(planted()), FitContext(report=report))
    assert [step for step, _, _ in seen] == sorted(step for step, _, _ in seen)
    assert seen[-1][:2] == (100, 100)
    assert all({"objective", "residual"} <= metrics.keys() for _, _, metrics in seen[:-1])


def test_a_saved_selection_is_read_back_with_names_roles_and_curves(tmp_path: Path) -> None:
    made = LabelSelection(budget=5, outlier_above=0.7).fit(data_of(planted(), names=True), FitContext())
    made.save(tmp_path)
    found = FittedSelection.load(tmp_path)
    for name in ("chosen", "gains", "outliers", "rows", "errors"):
        assert np.array_equal(getattr(found, name), getattr(made, name)), name
    assert found.names[3] == "label 3"
    assert (found.coefficients != made.coefficients).nnz == 0
    assert [curve.solve for curve in found.convergence] == ["affinity", "map"]
    for old, new in zip(made.convergence, found.convergence, strict=True):
        assert np.array_equal(old.objectives, new.objectives)
        assert old.n_skipped == new.n_skipped


def test_a_selection_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    made = LabelSelection(budget=5).fit(data_of(planted()), FitContext())
    made.save(tmp_path)
    about = tmp_path / "selection.json"
    about.write_text(about.read_text().replace('"n_labels": 22', '"n_labels": 21'))
    with pytest.raises(ArtifactDamaged, match="must count from 0 to 20"):
        FittedSelection.load(tmp_path)
