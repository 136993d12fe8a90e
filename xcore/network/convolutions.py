"""Convolutions in front of a network, as plain arrays: images in, vectors out, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcore.errors import ConfigError
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, vectors_of_images
from xcore.numeric.products import product_of_rows

KERNEL = 3  # pixels in each direction


@dataclass(frozen=True)
class Convolutions:
    """Layers of 3 x 3 convolution, ReLU and pooling of 2 x 2 pixels.

    Attributes
    ----------
    shape : tuple of int
        Height, width and channels of an image.
    weights : tuple of float32 (out, 9 in)
        Of each layer; the 9 pixels by row, each with its channels.
    biases : tuple of float32 (out,)
    """

    shape: tuple[int, int, int]
    weights: tuple[Float32, ...]
    biases: tuple[Float32, ...]

    @property
    def n_features(self) -> int:
        """Numbers of an image."""
        return int(np.prod(self.shape))

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        return vector_length(self.shape, [len(own) for own in self.biases])

    def transform(self, images: npt.NDArray[np.uint8]) -> Float32:
        """Vectors of some images, float32 (n, dimensions); each depends on its image alone."""
        x = scaled_images(images, self.shape)
        for weights, biases in zip(self.weights, self.biases, strict=True):
            x = _pooled(_convolved(x, weights, biases))
        return x.reshape(len(x), -1)

    def arrays(self) -> dict[str, Any]:
        """All weights, by name."""
        layers = enumerate(zip(self.weights, self.biases, strict=True))
        return {
            f"convolutions.{number}.{name}": own
            for number, pair in layers
            for name, own in zip(("weights", "biases"), pair, strict=True)
        }

    @classmethod
    def take(cls, file: ArrayFile, shape: tuple[int, int, int], channels: Sequence[int]) -> Self:
        """What `arrays` gave, from a file; every array is checked."""
        weights, biases = [], []
        for number, (before, size) in enumerate(zip((shape[2], *channels), channels, strict=False)):
            name = f"convolutions.{number}"
            weights.append(file.take(f"{name}.weights", np.float32, (size, KERNEL**2 * before)).finite().array)
            biases.append(file.take(f"{name}.biases", np.float32, (size,)).finite().array)
        return cls(shape, tuple(weights), tuple(biases))


def vector_length(shape: tuple[int, int, int], channels: Sequence[int]) -> int:
    """Length of the vector that convolutions of these channels make of an image; halves are rounded up."""
    height, width, depth = shape
    for size in channels:
        height, width, depth = -(-height // 2), -(-width // 2), size
    return height * width * depth


def image_shape(images: npt.NDArray[np.uint8]) -> tuple[int, int, int]:
    """Height, width and channels of images (n, height, width) or (n, height, width, channels)."""
    height, width, *channels = images.shape[1:]
    return height, width, channels[0] if channels else 1


def scaled_images(images: npt.NDArray[np.uint8], shape: tuple[int, int, int]) -> Float32:
    """Images as numbers from 0 to 1, float32 (n, height, width, channels)."""
    as_line = (int(np.prod(shape)), 1, 1)  # pixels of a served row
    if image_shape(images) not in (shape, as_line):
        raise ConfigError(f"this model was trained on images of shape {shape}, got images of {image_shape(images)}")
    return vectors_of_images(images).reshape(len(images), *shape)


def _convolved(x: Float32, weights: Float32, biases: Float32) -> Float32:
    """ReLU of a convolution with zeros around the image."""
    n, height, width, depth = x.shape
    around = np.zeros((n, height + 2, width + 2, depth), np.float32)
    around[:, 1:-1, 1:-1] = x
    windows = np.lib.stride_tricks.sliding_window_view(around, (KERNEL, KERNEL), axis=(1, 2))
    pixels = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * height * width, KERNEL**2 * depth)
    found = product_of_rows(np.ascontiguousarray(pixels), weights)
    found += biases
    return np.maximum(found, 0, out=found).reshape(n, height, width, len(biases))


def _pooled(x: Float32) -> Float32:
    """The largest of each 2 x 2 pixels; an odd last row or column stands alone."""
    n, height, width, depth = x.shape
    even = np.zeros((n, height + height % 2, width + width % 2, depth), np.float32)  # after ReLU nothing is below 0
    even[:, :height, :width] = x
    pooled: Float32 = even.reshape(n, even.shape[1] // 2, 2, even.shape[2] // 2, 2, depth).max(axis=(2, 4))
    return pooled
