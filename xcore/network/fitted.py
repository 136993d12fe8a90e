"""A trained network as plain arrays: predictions need no torch, and a row's bits depend on that row alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from xcore.errors import ArtifactDamaged
from xcore.network.convolutions import Convolutions
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows
from xcore.saved import Count, Described

EPSILON = 1e-5  # of the layer norm, as torch has it
BLOCK_ROWS = 512
BLOCK_IMAGES = 16

Size: TypeAlias = Annotated[int, Field(ge=1, lt=2**24)]


class ImagesAbout(Described):
    """What is known of the images that a network takes."""

    shape: Annotated[tuple[Size, Size, Size], Field(strict=False)]
    channels: Annotated[list[Size], Field(max_length=16)]


class NetworkAbout(Described):
    """What a JSON file says of a network."""

    n_features: Count
    sizes: Annotated[list[Size], Field(min_length=1)]
    images: ImagesAbout | None


@dataclass(frozen=True)
class Layer:
    """``relu(norm(x W' + b))``, with a layer norm.

    Attributes
    ----------
    weights : float32 (out, in)
    bias, scale, shift : float32 (out,)
    """

    weights: Float32
    bias: Float32
    scale: Float32
    shift: Float32

    def activate(self, product: Float32) -> Float32:
        """The layer's output for ``x W'``, which is changed in place."""
        product += self.bias
        product -= product.mean(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
        variance = np.square(product).mean(axis=1, dtype=np.float64, keepdims=True)
        product *= ((variance + EPSILON) ** -0.5).astype(np.float32) * self.scale
        product += self.shift
        return np.maximum(product, 0.0, out=product)


@dataclass(frozen=True)
class Network:
    """Layers from rows of features, or images, to a vector of features that the head sees.

    Attributes
    ----------
    table : float32 (n_features, width)
        The vector of each input feature: the first layer's weights, transposed. Of images, the input features are
        what the convolutions make.
    first : Layer
        Its weights are empty; they are the table.
    others : tuple of Layer
    convolutions : Convolutions or None
        What is in front of the first layer; None: nothing.
    """

    table: Float32
    first: Layer
    others: tuple[Layer, ...]
    convolutions: Convolutions | None = None

    @property
    def n_features(self) -> int:
        return self.convolutions.n_features if self.convolutions else len(self.table)

    @property
    def dimensions(self) -> int:
        return len((self.others[-1] if self.others else self.first).bias)

    def transform(self, X: Any) -> Float32:
        """Features of the last hidden layer, float32 (n, dimensions), of sparse or dense rows or images.

        Cost O(nnz width). A row's bits depend on that row alone.
        """
        out = np.empty((X.shape[0], self.dimensions), np.float32)

        def fill(part: slice) -> None:
            rows = self.convolutions.transform(X[part]) if self.convolutions else X[part]
            x = self.first.activate(self._first_product(rows))
            for layer in self.others:
                x = layer.activate(product_of_rows(x, layer.weights))
            out[part] = x

        over_blocks(fill, row_blocks(X.shape[0], BLOCK_IMAGES if self.convolutions else BLOCK_ROWS))
        return out

    def _first_product(self, rows: Any) -> Float32:
        if sp.issparse(rows):
            return np.asarray(rows @ self.table, np.float32)
        return product_of_rows(np.ascontiguousarray(rows, np.float32), self._first_weights)

    @cached_property
    def _first_weights(self) -> Float32:
        return np.ascontiguousarray(self.table.T)

    def arrays(self) -> dict[str, Float32]:
        """All weights, by name."""
        found = {"table": self.table}
        for number, layer in enumerate((self.first, *self.others)):
            names = ("bias", "scale", "shift") if number == 0 else ("weights", "bias", "scale", "shift")
            found |= {f"layers.{number}.{name}": getattr(layer, name) for name in names}
        return found | (self.convolutions.arrays() if self.convolutions else {})

    def about(self) -> dict[str, Any]:
        """What `NetworkAbout` reads."""
        front = self.convolutions
        images = {"shape": list(front.shape), "channels": [len(own) for own in front.biases]} if front else None
        return {"n_features": self.n_features, "sizes": self.sizes, "images": images}

    @property
    def sizes(self) -> list[int]:
        """Units of each layer."""
        return [len(layer.bias) for layer in (self.first, *self.others)]

    @classmethod
    def take(cls, file: ArrayFile, about: NetworkAbout) -> Self:
        """What `arrays` gave, from a file; every array is checked."""
        sizes, front, n_inputs = about.sizes, None, about.n_features
        if about.images:
            front = Convolutions.take(file, about.images.shape, about.images.channels)
            n_inputs = front.dimensions
            if front.n_features != about.n_features:
                raise ArtifactDamaged(
                    f"{file.path}: images of shape {front.shape} have {front.n_features} features, expected "
                    f"{about.n_features}; make the artifact again"
                )

        def layer(number: int) -> Layer:
            size, weights = sizes[number], np.zeros((0, 0), np.float32)
            if number:
                weights = file.take(f"layers.{number}.weights", np.float32, (size, sizes[number - 1])).finite().array
            names = (f"layers.{number}.{name}" for name in ("bias", "scale", "shift"))
            return Layer(weights, *(file.take(name, np.float32, (size,)).finite().array for name in names))

        table = file.take("table", np.float32, (n_inputs, sizes[0])).finite().array
        return cls(table, layer(0), tuple(layer(number) for number in range(1, len(sizes))), front)
