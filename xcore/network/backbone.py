"""The layers of the network below its head, by torch."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import conv2d, layer_norm, linear, max_pool2d, relu

from xcore.heads.fitting.base import array_of, weights
from xcore.memory import TRAINED, need_array
from xcore.network.convolutions import KERNEL, Convolutions, image_shape, scaled_images, vector_length
from xcore.network.first_layer import TABLE, sums_of_features
from xcore.network.fitted import EPSILON, Layer, Network
from xcore.network.options import NetworkOptions
from xcore.training.data import Matrix
from xcore.training.shards import Lookup

FEWER_INPUTS = "Set width lower, or use fewer features, such as a smaller text.max_features."
TABLE_SPREAD = 0.1  # of the first vectors of features; the layer norm takes their length away


class Backbone(torch.nn.Module):
    """Convolutions for images, the table of input features, and layers with norm, ReLU and dropout.

    Attributes
    ----------
    tables : dict of tensor
        The vectors of sparse features, of which a step changes those that occur.
    dimensions : int
        Length of the features that it makes.
    """

    def __init__(self, options: NetworkOptions, X: Matrix, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.dropout, self._is_sparse = options.dropout, sp.issparse(X)
        self.image_shape = image_shape(X) if X.ndim > 2 else None
        channels = options.channels if self.image_shape else ()
        depths = zip((self.image_shape[2] if self.image_shape else 0, *channels), channels, strict=False)
        sizes = (options.width, *options.hidden)
        self.kernels = _parameters(
            [torch.randn((b, a, KERNEL, KERNEL), generator=generator) * (2 / (KERNEL**2 * a)) ** 0.5 for a, b in depths]
        )
        self.kernel_biases = _parameters([torch.zeros(size) for size in channels])
        self.biases, self.shifts = (_parameters([torch.zeros(size) for size in sizes]) for _ in range(2))
        self.scales = _parameters([torch.ones(size) for size in sizes])
        shapes = zip(sizes[1:], sizes[:-1], strict=True)
        self.weights = torch.nn.ParameterList([weights(shape, seed + at) for at, shape in enumerate(shapes, 2)])
        n_inputs = vector_length(self.image_shape, channels) if self.image_shape else X.shape[1]
        shape = (n_inputs, sizes[0])
        need_array(shape, "the table of input features in training", FEWER_INPUTS, entry_bytes=TRAINED)
        table = torch.randn(shape, generator=generator) * TABLE_SPREAD
        self.tables = {TABLE: table} if self._is_sparse else {}
        self.first = None if self._is_sparse else torch.nn.Parameter(table)
        self.dimensions = sizes[-1]

    def forward(self, rows: Matrix, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Features of some rows, (n, dimensions)."""
        x = self._first_layer(rows, lookup)
        for number, bias in enumerate(self.biases):
            if number:
                x = linear(x, self.weights[number - 1])
            x = layer_norm(x + bias, x.shape[1:], self.scales[number], self.shifts[number], EPSILON)
            x = self._dropped(relu(x), generator)
        return x

    def _first_layer(self, rows: Matrix, lookup: Lookup) -> torch.Tensor:
        first, device = self.first, self.biases[0].device
        if first is None or self.image_shape is None:
            return sums_of_features(rows, lookup if first is None else lambda name, used: first, device)
        return self._convolved(rows, self.image_shape, device) @ first

    def _convolved(self, images: Matrix, shape: tuple[int, int, int], device: torch.device) -> torch.Tensor:
        """What the convolutions make of images, (n, inputs).

        Channels lie side by side in memory, and ReLU comes after pooling, where a quarter of the pixels is left. On a
        CPU this saves a third of a step.
        """
        x = torch.from_numpy(scaled_images(images, shape)).to(device).permute(0, 3, 1, 2)
        x = x.contiguous(memory_format=torch.channels_last)
        for kernel, bias in zip(self.kernels, self.kernel_biases, strict=True):
            x = relu(max_pool2d(conv2d(x, kernel, bias, padding=KERNEL // 2), 2, ceil_mode=True))
        return x.permute(0, 2, 3, 1).flatten(1)

    def _dropped(self, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not self.dropout:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.dropout, generator=generator)
        return x * kept / (1 - self.dropout)

    def fitted(self) -> Network:
        """The present weights as plain arrays."""
        found = [[array_of(value) for value in own] for own in (self.biases, self.scales, self.shifts)]
        matrices = [np.zeros((0, 0), np.float32), *map(array_of, self.weights)]
        layers = [Layer(*values) for values in zip(matrices, *found, strict=True)]
        table = array_of(self.tables[TABLE] if self.first is None else self.first)
        return Network(table, layers[0], tuple(layers[1:]), self._convolutions())

    def _convolutions(self) -> Convolutions | None:
        if self.image_shape is None:
            return None
        kernels = [array_of(own.permute(0, 2, 3, 1).flatten(1)) for own in self.kernels]
        return Convolutions(self.image_shape, tuple(kernels), tuple(map(array_of, self.kernel_biases)))


def _parameters(values: list[torch.Tensor]) -> torch.nn.ParameterList:
    return torch.nn.ParameterList([torch.nn.Parameter(value) for value in values])
