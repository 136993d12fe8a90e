"""A trained network as plain arrays: predictions need no torch, and a row's bits depend on that row alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, Float32, row_blocks, sparse_of_dense
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows

EPSILON = 1e-5  # of the layer norm, as torch has it
BLOCK_ROWS = 512


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
    """Layers from rows of features to a vector of features that the output layer sees.

    Attributes
    ----------
    table : float32 (n_features, width)
        The vector of each input feature: the first layer's weights, transposed.
    first : Layer
        Its weights are empty; they are the table.
    others : list of Layer
    """

    table: Float32
    first: Layer
    others: tuple[Layer, ...]

    @property
    def n_features(self) -> int:
        return len(self.table)

    @property
    def dimensions(self) -> int:
        return len((self.others[-1] if self.others else self.first).bias)

    def transform(self, X: Any) -> Float32:
        """Features of the last hidden layer, float32 (n, dimensions), of sparse or dense rows. Cost O(nnz width)."""
        rows: CSR = X if sp.issparse(X) else sparse_of_dense(np.ascontiguousarray(X, np.float32))
        out = np.empty((rows.shape[0], self.dimensions), np.float32)

        def fill(part: slice) -> None:
            x = self.first.activate(np.asarray(rows[part] @ self.table, np.float32))
            for layer in self.others:
                x = layer.activate(product_of_rows(x, layer.weights))
            out[part] = x

        over_blocks(fill, row_blocks(rows.shape[0], BLOCK_ROWS))
        return out

    def arrays(self) -> dict[str, Float32]:
        """All weights, by name."""
        found = {"table": self.table}
        for number, layer in enumerate((self.first, *self.others)):
            names = ("bias", "scale", "shift") if number == 0 else ("weights", "bias", "scale", "shift")
            found |= {f"layers.{number}.{name}": getattr(layer, name) for name in names}
        return found

    @property
    def sizes(self) -> list[int]:
        """Units of each layer."""
        return [len(layer.bias) for layer in (self.first, *self.others)]

    @classmethod
    def take(cls, file: ArrayFile, n_features: int, sizes: Sequence[int]) -> Self:
        """What `arrays` gave, from a file; every array is checked."""

        def layer(number: int) -> Layer:
            size, weights = sizes[number], np.zeros((0, 0), np.float32)
            if number:
                weights = file.take(f"layers.{number}.weights", np.float32, (size, sizes[number - 1])).finite().array
            names = (f"layers.{number}.{name}" for name in ("bias", "scale", "shift"))
            return Layer(weights, *(file.take(name, np.float32, (size,)).finite().array for name in names))

        table = file.take("table", np.float32, (n_features, sizes[0])).finite().array
        return cls(table, layer(0), tuple(layer(number) for number in range(1, len(sizes))))
