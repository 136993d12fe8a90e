"""A network for images: the same convolutions in training and in prediction, and what it learns."""

from pathlib import Path

import numpy as np
import pytest
import torch

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.network import FittedNetwork, NeuralNetwork
from xcore.network.backbone import Backbone
from xcore.network.options import NetworkOptions
from xcore.numeric.matrices import binary_csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData
from xcore.training.shards import Lookup

N_PLACES = 4


def squares(n: int, seed: int = 0) -> TrainingData:
    """Images of noise with a bright square at one of four places, which is the class."""
    rng = np.random.default_rng(seed)
    images, places = rng.integers(0, 60, (n, 9, 11), dtype=np.uint8), rng.integers(0, N_PLACES, n)
    for image, place in zip(images, places.tolist(), strict=True):
        top, left = 5 * (place // 2), 6 * (place % 2)
        image[top : top + 3, left : left + 3] = 200
    return TrainingData.of(images, binary_csr(places, np.arange(n + 1), N_PLACES))


SMALL = NeuralNetwork(width=16, channels=(4, 6), epochs=8, batch_size=16, learning_rate=0.01)


@pytest.fixture(scope="module")
def fitted() -> FittedNetwork:
    found = SMALL.fit(squares(200), FitContext())
    assert isinstance(found, FittedNetwork)
    return found


@pytest.mark.parametrize("channels", [(), (4,), (4, 6, 3)])
@pytest.mark.parametrize("shape", [(9, 11), (8, 8, 3)])
def test_prediction_has_the_features_of_training(channels: tuple[int, ...], shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), dtype=np.uint8)
    backbone = Backbone(NetworkOptions(width=7, hidden=(5,), channels=channels, dropout=0.0), images, seed=3)
    with torch.no_grad():
        for own in backbone.kernel_biases:
            own.add_(0.1)
        expected = backbone(images, Lookup({}), torch.Generator()).numpy()
    np.testing.assert_allclose(backbone.fitted().transform(images), expected, rtol=1e-4, atol=1e-5)


def test_classes_of_images_are_learnt(fitted: FittedNetwork) -> None:
    held_out = squares(100, seed=1)
    assert fitted.form == "image"
    top = fitted.predict_topk(held_out.X, 1)
    assert (top.labels[:, 0] == held_out.Y.indices).mean() >= 0.95


def test_an_image_alone_is_predicted_as_in_a_batch(fitted: FittedNetwork) -> None:
    images = squares(40, seed=2).X
    batch = fitted.predict_topk(images, 3)
    alone = fitted.predict_topk(images[17:18], 3)
    assert np.array_equal(alone.labels[0], batch.labels[17])
    assert np.array_equal(alone.scores[0], batch.scores[17])


def test_a_saved_network_for_images_predicts_the_same(fitted: FittedNetwork, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    images = squares(10, seed=3).X
    found = NeuralNetwork.load(tmp_path).predict_topk(images, 2)
    assert np.array_equal(found.scores, fitted.predict_topk(images, 2).scores)


def test_images_of_another_shape_are_refused(fitted: FittedNetwork) -> None:
    with pytest.raises(ConfigError, match=r"images of shape \(9, 11, 1\), got images of \(11, 9, 1\)"):
        fitted.predict_topk(np.zeros((2, 11, 9), np.uint8), 1)


def test_a_file_whose_image_shape_was_changed_is_damaged(fitted: FittedNetwork, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    about = tmp_path / "model.json"
    about.write_text(about.read_text().replace('"n_features": 99', '"n_features": 98'))
    with pytest.raises(ArtifactDamaged, match="99 features, expected 98"):
        NeuralNetwork.load(tmp_path)
