"""What a network leaves out, and what its dev rows choose."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from xcore.embedding.pca import Pca
from xcore.heads.one_hot import OneHot
from xcore.heads.product import MultiHeadProduct
from xcore.models.network import FittedNetwork, NeuralNetwork
from xcore.network.fitting import without_tail
from xcore.numeric.matrices import binary_csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

SMALL = NeuralNetwork(width=32, epochs=15, batch_size=16, learning_rate=0.01, dropout=0.1)


def blobs(n: int, n_classes: int, seed: int) -> TrainingData:
    """Points around one centre per class."""
    centres = np.random.default_rng(9).normal(size=(n_classes, 10))
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % n_classes
    X = centres[classes] + 0.3 * rng.normal(size=(n, 10))
    return TrainingData.of(X, binary_csr(classes, np.arange(n + 1), n_classes))


def test_the_rarest_labels_are_left_out() -> None:
    Y = binary_csr(np.array([0, 0, 0, 1, 3, 3, 4, 4, 4, 4]), np.arange(11), 6)
    labels = np.array([0, 1, 3, 4], np.int32)
    assert without_tail(labels, Y, 0.0).tolist() == [0, 1, 3, 4]
    assert without_tail(labels, Y, 0.25).tolist() == [0, 3, 4]
    assert without_tail(labels, Y, 0.5).tolist() == [0, 4]
    assert without_tail(labels, Y, 0.999).tolist() == [4]


def test_a_trimmed_network_never_answers_what_it_did_not_learn() -> None:
    data = blobs(60, 6, seed=0)
    kept = np.array([row for row in range(60) if row % 6 != 5 or row < 30])
    few = TrainingData.of(data.X[kept], data.Y[kept])  # class 5 has the fewest rows
    fitted = SMALL.model_copy(update={"trimmed": 1 / 6}).fit(few, FitContext())
    assert isinstance(fitted, FittedNetwork)
    assert sorted(fitted.labels.tolist()) == [0, 1, 2, 3, 4]
    assert 5 not in fitted.predict_topk(data.X, 6).labels


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_a_product_of_heads_learns_one_class_per_row(loss: str) -> None:
    """Fifty classes with two heads of few outputs, in an order that means nothing."""
    head = MultiHeadProduct.model_validate({"order": "random", "loss": loss})
    fitted = SMALL.model_copy(update={"head": head, "epochs": 30, "width": 64}).fit(blobs(1500, 50, 0), FitContext())
    held_out = blobs(300, 50, seed=1)
    top = fitted.predict_topk(held_out.X, 3)
    assert (top.labels[:, 0] == held_out.Y.indices).mean() >= 0.9
    assert ((top.scores >= 0) & (top.scores <= 1)).all()


def test_given_numbers_are_the_code_also_where_a_label_has_no_training_row() -> None:
    """A row shows two digits of its label's number. Labels 7 and 13 are not in training, and are found by digits."""
    numbers = np.tile(np.arange(16), 40)
    X = np.hstack([np.eye(4)[numbers // 4], np.eye(4)[numbers % 4]])
    seen = ~np.isin(numbers, (7, 13))
    data = TrainingData.of(X[seen], binary_csr(numbers[seen], np.arange(seen.sum() + 1), 16))
    head = MultiHeadProduct(lengths=(4, 4))
    fitted = SMALL.model_copy(update={"head": head, "epochs": 30}).fit(data, FitContext())
    assert fitted.predict_topk(X[:16], 1).labels.ravel().tolist() == list(range(16))


def test_the_log_likelihood_of_a_network_over_components_is_that_of_its_probabilities() -> None:
    dense = blobs(120, 6, seed=0)
    data = TrainingData.of(csr_array(dense.X), dense.Y)
    softmax = OneHot(loss="softmax")
    model = SMALL.model_copy(update={"head": softmax, "epochs": 2, "embedding": Pca(dimensions=5)})
    fitted = model.fit(data, FitContext())
    assert isinstance(fitted, FittedNetwork)
    top = fitted.predict_topk(data.X, 1)
    scores = fitted.predict_topk(data.X, 6).scores.astype(np.float64)
    expected = scores[:, 0] - np.log(np.exp(scores).sum(axis=1))
    found = fitted.log_probability(data.X, top.labels[:, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
