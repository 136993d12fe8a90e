"""Training of the network by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, layer_norm, linear, log_softmax, relu

from xcore.errors import ConfigError
from xcore.network.dev_rows import DEV_METRIC, dev_metrics, dev_sample
from xcore.network.first_layer import TABLE, sums_of_features
from xcore.network.fitted import EPSILON, Layer, Network
from xcore.network.options import NetworkOptions
from xcore.numeric.matrices import CSR, Float32, Int32, Int64
from xcore.numeric.products import product_of_rows
from xcore.training.checkpoints import Checkpoints, training_name
from xcore.training.context import FitContext
from xcore.training.data import Matrix, TrainingData
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup

TABLE_SPREAD = 0.1  # of the first vectors of features; the layer norm takes their length away


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with its output layer: the scores of a row are ``features W' + b``.

    Attributes
    ----------
    labels : int32 (m,)
        Label id of each output, ascending: the labels that have a training row.
    weights : float32 (m, d)
    biases : float32 (m,)
    """

    network: Network
    labels: Int32
    weights: Float32
    biases: Float32


def fit_network(options: NetworkOptions, data: TrainingData, context: FitContext) -> TrainedNetwork:
    """Train on rows and targets; dev rows, if there are any, choose when to stop and which weights to keep."""
    seed = int(context.rng.integers(2**31))
    labels = np.unique(data.Y.indices).astype(np.int32)
    if not len(labels):
        raise ConfigError(f"none of the {data.Y.shape[0]} training rows has a label: a network needs at least one")
    problem = NetworkProblem(
        options, data.X, data.Y[:, labels].tocsr(), dev_sample(data.dev, labels), seed, device_of(context)
    )
    schedule = Schedule(
        n_examples=data.Y.shape[0],
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        seed=seed,
        patience=options.patience,
        select=DEV_METRIC,
        average_from=options.average_from,
    )
    name = training_name(options.options(), seed, (data.X, data.Y)) if context.scratch else ""
    train(problem, schedule, context, Checkpoints(context.scratch, name))
    return TrainedNetwork(problem.network(), labels, *problem.output())


def device_of(context: FitContext) -> torch.device:
    """Where to train: `auto` takes a GPU if there is one."""
    name = ("cuda" if torch.cuda.is_available() else "cpu") if context.device == "auto" else context.device
    return torch.device(name)


class NetworkModule(torch.nn.Module):
    """The weights but for the table of the input features."""

    def __init__(self, sizes: tuple[int, ...], n_outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        ones = [torch.ones(size) for size in sizes]
        self.biases = _parameters([torch.zeros(size) for size in sizes])
        self.scales, self.shifts = _parameters(ones), _parameters([torch.zeros(size) for size in sizes])
        shapes = [*zip(sizes[1:], sizes[:-1], strict=True), (n_outputs, sizes[-1])]
        self.weights = _parameters([torch.randn(shape, generator=generator) * shape[1] ** -0.5 for shape in shapes])
        self.output_bias = torch.nn.Parameter(torch.zeros(n_outputs))


def _parameters(values: list[torch.Tensor]) -> torch.nn.ParameterList:
    return torch.nn.ParameterList([torch.nn.Parameter(value) for value in values])


@dataclass
class NetworkProblem:
    """The network, its loss and its dev rows, as the training loop takes them."""

    options: NetworkOptions
    X: Matrix
    Y: CSR
    dev: tuple[Matrix, CSR] | None
    seed: int
    device: torch.device
    module: NetworkModule = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        sizes = (self.options.width, *self.options.hidden)
        self.module = NetworkModule(sizes, self.Y.shape[1], generator).to(self.device)
        table = torch.randn((self.X.shape[1], sizes[0]), generator=generator) * TABLE_SPREAD
        self.tables = {TABLE: table.to(self.device)}
        shares = np.maximum(np.asarray(self.Y.sum(axis=0)).ravel() / max(self.Y.shape[0], 1), 1e-6)
        if self.options.loss == "logistic":  # outputs begin at the labels' frequencies, not at one half each
            start = np.log(shares / np.maximum(1 - shares, 1e-6))
            self.module.output_bias.data.copy_(torch.from_numpy(start.astype(np.float32)))

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of the targets, summed over the examples."""
        x = sums_of_features(self.X, examples, lookup, self.device)
        module = self.module
        for number in range(len(module.biases)):
            if number:
                x = linear(x, module.weights[number - 1])
            x = layer_norm(
                x + module.biases[number], x.shape[1:], module.scales[number], module.shifts[number], EPSILON
            )
            x = self._dropped(relu(x), generator)
        scores = linear(x, module.weights[-1], module.output_bias)
        targets = torch.from_numpy(self.Y[examples].toarray()).to(self.device)
        if self.options.loss == "logistic":
            return binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        return -(targets * log_softmax(scores, dim=1)).sum()

    def _dropped(self, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not self.options.dropout:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.options.dropout, generator=generator)
        return x * kept / (1 - self.options.dropout)

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 on the dev rows."""
        if self.dev is None:
            return {}
        X, Y = self.dev
        weights, biases = self.output()
        scores = product_of_rows(self.network().transform(X), weights) + biases
        return dev_metrics(scores, Y)

    def network(self) -> Network:
        """The present weights without the output layer."""
        module = self.module
        found = [[array_of(value) for value in own] for own in (module.biases, module.scales, module.shifts)]
        weights = [np.zeros((0, 0), np.float32), *(array_of(value) for value in module.weights[:-1])]
        layers = [Layer(*values) for values in zip(weights, *found, strict=True)]
        return Network(array_of(self.tables[TABLE]), layers[0], tuple(layers[1:]))

    def output(self) -> tuple[Float32, Float32]:
        """Weights and biases of the output layer."""
        return array_of(self.module.weights[-1]), array_of(self.module.output_bias)


def array_of(value: torch.Tensor) -> Float32:
    """A copy of a tensor that needs no torch."""
    return np.array(value.detach().cpu().numpy(), np.float32)
