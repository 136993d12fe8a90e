"""Deep-MIML and co-attention beyond the contract of all models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xcore.errors import ConfigError
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.miml.options import BagLoss
from xcore.models.miml import CoAttention, DeepMiml, FittedMiml
from xcore.numeric.matrices import NO_LABEL, binary_csr, csr
from xcore.training.context import FitContext
from xcore.training.data import Bags, TrainingData

N_LABELS, SIZE, D = 5, 6, 12


def planted(n_bags: int = 150, seed: int = 0, counted: bool = True) -> tuple[TrainingData, np.ndarray]:
    """Rows with one label each, near one of five points, in bags of six; labels are known for bags only."""
    rng = np.random.default_rng(seed)
    label = rng.integers(N_LABELS, size=n_bags * SIZE)
    points = np.random.default_rng(99).standard_normal((N_LABELS, D))
    X = (points[label] + 0.3 * rng.standard_normal((len(label), D))).astype(np.float32)
    members = binary_csr(np.arange(len(label)), np.arange(n_bags + 1) * SIZE, len(label))
    counts = np.stack([np.bincount(label[j * SIZE : (j + 1) * SIZE], minlength=N_LABELS) for j in range(n_bags)])
    bag, which = np.nonzero(counts)
    indptr = np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))])
    Y = csr(counts[bag, which] if counted else np.ones(len(bag)), which, indptr, N_LABELS)
    nothing = np.zeros((len(label), N_LABELS), np.float32)
    return TrainingData.of(X, nothing, bags=Bags(members, Y, counted)), label


def fit(model: DeepMiml | CoAttention, data: TrainingData) -> FittedMiml:
    fitted = model.fit(data, FitContext(rng=np.random.default_rng(3)))
    assert isinstance(fitted, FittedMiml)
    return fitted


def accuracy(fitted: FittedMiml) -> float:
    data, label = planted(40, seed=7)
    return float((fitted.predict_topk(data.X, 1).labels[:, 0] == label).mean())


def files(fitted: FittedMiml, folder: Path) -> bytes:
    folder.mkdir()
    fitted.save(folder)
    return (folder / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("loss", ["softmax", "proportion", "count"])
def test_rows_are_told_apart_though_only_bags_have_labels(loss: BagLoss) -> None:
    assert accuracy(fit(DeepMiml(loss=loss, width=32), planted()[0])) >= 0.95


def test_sets_of_labels_are_enough_for_small_bags() -> None:
    assert accuracy(fit(DeepMiml(loss="count", width=32), planted(counted=False)[0])) >= 0.9


def test_tau_zero_is_deep_miml_to_the_last_bit(tmp_path: Path) -> None:
    data = planted(40)[0]
    options = {"width": 8, "epochs": 2}
    plain, masked = fit(DeepMiml(**options), data), fit(CoAttention(tau=0, **options), data)
    assert files(plain, tmp_path / "plain") == files(masked, tmp_path / "masked")


@pytest.mark.parametrize("embeddings", [Eagle(iterations=0, centre=True), Eagle(centre=True), Disaggregate()])
def test_co_attention_learns_with_the_embeddings_of_each_imputer(embeddings: Eagle | Disaggregate) -> None:
    model = CoAttention(loss="softmax", width=32, embeddings=embeddings)
    fitted = fit(model, planted()[0])
    assert accuracy(fitted) >= 0.95
    assert fitted.embeddings is not None
    np.testing.assert_allclose(np.linalg.norm(fitted.embeddings, axis=1), 1, rtol=1e-5)


def test_the_mask_of_a_fitted_model_sums_to_the_size_of_each_bag() -> None:
    data, _ = planted(30)
    assert data.bags is not None
    mask = fit(CoAttention(tau=4, width=8, epochs=1), data).mask(data.X, data.bags.members)
    np.testing.assert_allclose(mask.reshape(30, SIZE, N_LABELS).sum(axis=1), SIZE, rtol=1e-5)
    assert mask.max() > 2


@pytest.mark.parametrize("loss", ["softmax", "count"])
def test_a_label_of_a_bag_is_explained_by_a_row_that_carries_it(loss: BagLoss, tmp_path: Path) -> None:
    fitted = fit(CoAttention(loss=loss, width=32), planted()[0])
    data, label = planted(40, seed=7)
    assert data.bags is not None
    members, truth = data.bags.members, binary_csr(label, np.arange(len(label) + 1), N_LABELS)
    found = fitted.explain(data.X, members, 3)
    precision = found.precision(data.bags.Y, truth)
    assert precision is not None
    assert precision >= 0.9
    assert ((found.rows >= np.arange(40)[:, None] * SIZE) & (found.rows < np.arange(1, 41)[:, None] * SIZE)).all()
    assert ((found.weights > 0) & (found.weights <= 1)).all()
    assert np.array_equal(found.top.labels, fitted.predict_bags(data.X, members, 3).labels)
    fitted.save(tmp_path)
    again = FittedMiml.load(tmp_path).explain(data.X, members, 3)
    assert np.array_equal(again.rows, found.rows)
    assert np.array_equal(again.top.scores, found.top.scores)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "proportion", "count"])
def test_a_bag_of_one_row_is_predicted_as_the_row(loss: BagLoss) -> None:
    fitted = fit(CoAttention(tau=3, loss=loss, width=8, epochs=1), planted(30)[0])
    X = planted(5, seed=1)[0].X
    alone = binary_csr(np.arange(len(X)), np.arange(len(X) + 1), len(X))
    rows, bags = fitted.predict_topk(X, 3), fitted.predict_bags(X, alone, 3)
    assert np.array_equal(rows.labels, bags.labels)
    np.testing.assert_allclose(rows.scores, bags.scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["proportion", "count"])
def test_a_bag_is_predicted_by_the_chances_of_all_its_rows(loss: BagLoss) -> None:
    fitted = fit(DeepMiml(loss=loss, width=8, epochs=1), planted(30)[0])
    data, _ = planted(10, seed=7)
    assert data.bags is not None
    chances, found = np.zeros((60, N_LABELS)), np.zeros((10, N_LABELS))
    rows, bags = fitted.predict_topk(data.X, N_LABELS), fitted.predict_bags(data.X, data.bags.members, N_LABELS)
    np.put_along_axis(chances, rows.labels, rows.scores, axis=1)
    np.put_along_axis(found, bags.labels, bags.scores, axis=1)
    of_bag = chances.reshape(10, SIZE, N_LABELS)
    expected = of_bag.mean(axis=1) if loss == "proportion" else 1 - (1 - of_bag).prod(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_labels_that_no_bag_has_are_not_predicted_and_the_others_keep_their_ids() -> None:
    data, label = planted()
    assert data.bags is not None
    Y = data.bags.Y
    odd = csr(Y.data, 2 * Y.indices + 1, Y.indptr, 2 * N_LABELS + 1)
    nothing = np.zeros((len(label), 2 * N_LABELS + 1), np.float32)
    wide = TrainingData.of(data.X, nothing, bags=Bags(data.bags.members, odd, counted=True))
    fitted, (other, truth) = fit(DeepMiml(loss="count", width=32), wide), planted(40, seed=7)
    found = fitted.predict_topk(other.X, N_LABELS + 1).labels
    assert (found[:, 0] == 2 * truth + 1).mean() >= 0.95
    assert (found[:, :N_LABELS] % 2 == 1).all()
    assert (found[:, N_LABELS] == NO_LABEL).all()


def test_the_mask_looks_at_the_directions_of_rows_alone() -> None:
    data, _ = planted(30)
    assert data.bags is not None
    fitted = fit(CoAttention(tau=4, width=8, epochs=1), data)
    masks = [fitted.mask(scale * data.X, data.bags.members) for scale in (1, 7)]
    np.testing.assert_allclose(masks[0], masks[1], rtol=1e-4)


def test_an_empty_bag_has_no_labels_and_breaks_no_training() -> None:
    data, _ = planted(30)
    assert data.bags is not None
    members = data.bags.members
    indptr = np.concatenate([members.indptr, members.indptr[-1:]])
    Y = csr(data.bags.Y.data, data.bags.Y.indices, np.append(data.bags.Y.indptr, data.bags.Y.nnz), N_LABELS)
    bags = Bags(binary_csr(members.indices, indptr, members.shape[1]), Y, counted=True)
    fitted = fit(DeepMiml(width=8, epochs=1), TrainingData(data.rows, data.Y, bags=bags))
    found = fitted.explain(data.X, bags.members, 2)
    assert (found.top.labels[-1] == NO_LABEL).all()
    assert (found.rows[-1] == -1).all()


def test_images_are_learnt_from_as_vectors_from_0_to_1() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 3, 4)).astype(np.uint8)
    Y = np.eye(2)[np.arange(60) % 2]
    options = DeepMiml(width=8, epochs=1)
    of_images = fit(options, TrainingData.of(images, Y))
    of_vectors = fit(options, TrainingData.of(images.reshape(60, 12) * np.float32(1 / 255), Y))
    assert of_images.form == "image"
    np.testing.assert_array_equal(
        of_images.predict_topk(images, 2).scores,
        of_vectors.predict_topk(images.reshape(60, 12) * np.float32(1 / 255), 2).scores,
    )


def test_bags_that_do_not_fit_the_rows_are_refused() -> None:
    data, _ = planted(30)
    assert data.bags is not None
    with pytest.raises(ConfigError, match="bags are over 180 rows, but there are 179"):
        TrainingData.of(data.X[:-1], data.Y[:-1], bags=data.bags)
    with pytest.raises(ConfigError, match="labels of bags have the shape"):
        TrainingData.of(data.X, data.Y, bags=Bags(data.bags.members, data.bags.Y[:3]))
    with pytest.raises(ConfigError, match="bags are over 180 rows, got 5 rows"):
        fit(DeepMiml(width=4, epochs=1), data).predict_bags(data.X[:5], data.bags.members, 1)
    with pytest.raises(ConfigError, match="none of the 30 bags has a label"):
        fit(DeepMiml(), TrainingData.of(data.X, data.Y, bags=Bags(data.bags.members)))
