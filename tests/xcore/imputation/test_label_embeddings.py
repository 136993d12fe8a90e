"""Label embeddings of the imputers, and the stage that keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.base import Imputer
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.label_embeddings import FittedLabelEmbeddings, LabelEmbeddings
from xcore.numeric.matrices import CSR, binary_csr, csr, normalise_rows
from xcore.training.context import FitContext
from xcore.training.data import TrainingData


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def planted(n: int = 400, n_labels: int = 20, d: int = 16, seed: int = 0) -> tuple[CSR, CSR, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_labels, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    label = rng.integers(n_labels, size=n)
    return as_csr(points[label] + 0.15 * rng.standard_normal((n, d))), as_csr(np.eye(n_labels)[label]), points


def grouped(size: int) -> tuple[CSR, Groups, np.ndarray]:
    X, Y, points = planted()
    return X, RandomGroups(size=size).group(X, Y, np.random.default_rng(1)), points


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("iterations", [0, 3, 20])
def test_eagle_assigns_a_label_to_the_member_nearest_to_its_embedding(iterations: int, centre: bool) -> None:
    X, groups, _ = grouped(5)
    imputer = Eagle(iterations=iterations, centre=centre)
    Y = imputer.impute(X, groups, np.random.default_rng(0)).Y.toarray()
    near = normalise_rows(X) @ imputer.label_embeddings(X, groups, np.random.default_rng(0)).T
    members, labels = groups.members.toarray() > 0, groups.labels.toarray() > 0
    for group in range(groups.n_groups):
        rows = np.flatnonzero(members[group])
        for label in np.flatnonzero(labels[group]):
            assert Y[rows[near[rows, label].argmax()], label] == 1


@pytest.mark.parametrize("iterations", [0, 20])
def test_for_single_rows_the_embedding_is_the_direction_of_the_mean_whatever_the_steps(iterations: int) -> None:
    X, Y, _ = planted()
    alone = Groups(binary_csr(np.arange(400), np.arange(401), 400), Y)
    found = Eagle(iterations=iterations).label_embeddings(X, alone, np.random.default_rng(0))
    means = (Y.T @ normalise_rows(X)).toarray()
    np.testing.assert_allclose(found, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("imputer", [Eagle(), Eagle(centre=True), Disaggregate()])
def test_planted_points_are_found(imputer: Imputer) -> None:
    X, groups, points = grouped(5)
    found = imputer.label_embeddings(X, groups, np.random.default_rng(0))
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    assert np.einsum("ij,ij->i", found, points).mean() >= 0.9


def test_the_scale_of_a_row_changes_nothing() -> None:
    X, groups, _ = grouped(5)
    scaled = as_csr(X.toarray() * np.random.default_rng(0).uniform(0.1, 9, (400, 1)))
    one, other = (Eagle().label_embeddings(rows, groups, np.random.default_rng(0)) for rows in (X, scaled))
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_vanishing_sum_and_a_label_in_no_group_give_no_nan() -> None:
    X = as_csr([[1, 0], [-1, 0]] * 3)
    members = binary_csr(np.arange(6), np.array([0, 2, 4, 6]), 6)
    groups = Groups(members, binary_csr(np.array([0, 1] * 3), np.array([0, 2, 4, 6]), 3))
    for imputer in (Eagle(iterations=0), Eagle(), Disaggregate()):
        found = imputer.label_embeddings(X, groups, np.random.default_rng(0))
        assert np.isfinite(found).all()
        assert (found[2] == 0).all()
    assert abs(Eagle().label_embeddings(X, groups, np.random.default_rng(0))[0, 0]) == pytest.approx(1)


def test_the_stage_remembers_the_shape_of_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 2, 3)).astype(np.uint8)
    data = TrainingData.of(images, np.eye(2)[np.arange(30) % 2])
    LabelEmbeddings().fit(data, FitContext()).save(tmp_path)
    loaded = LabelEmbeddings.load(tmp_path)
    assert loaded.image_shape == (2, 3, 1)
    assert loaded.vectors.shape == (2, 6)
    about = tmp_path / "label_embeddings.json"
    about.write_text(about.read_text().replace("3,", "4,"))
    with pytest.raises(ArtifactDamaged, match="pixel"):
        FittedLabelEmbeddings.load(tmp_path)


def test_embeddings_that_would_not_fit_into_memory_are_refused() -> None:
    X = csr(np.ones(2), np.array([0, 19_999_999]), np.array([0, 1, 2]), 20_000_000)
    with pytest.raises(ConfigError, match="at most 1 GB"):
        LabelEmbeddings().fit(TrainingData.of(X, np.eye(2, 20)), FitContext())
