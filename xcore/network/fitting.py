"""Training of the network by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from xcore.errors import ConfigError
from xcore.heads.base import FittedHead, OrderedHead
from xcore.heads.fitting.base import Targets, TorchHead
from xcore.heads.order import ordered_labels
from xcore.network.backbone import Backbone
from xcore.network.fitted import Network
from xcore.network.options import NetworkOptions
from xcore.numeric.matrices import CSR, Int32, Int64
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import Matrix, TrainingData, canonical_csr
from xcore.training.dev_choice import DEPTH, DEV_METRIC, DEV_ROWS, dev_metrics, dev_sample
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with its head.

    Attributes
    ----------
    network : Network
    labels : int32 (m,)
        Label id of each class of the head: the labels that have a training row, or all (`Head.keeps_numbers`).
    head : FittedHead
    """

    network: Network
    labels: Int32
    head: FittedHead


def fit_network(options: NetworkOptions, data: TrainingData, context: FitContext) -> TrainedNetwork:
    """Train on rows and targets; dev rows, if there are any, choose when to stop and which weights to keep."""
    seed = int(context.rng.integers(2**31))
    labels = np.unique(data.Y.indices).astype(np.int32)
    if not len(labels):
        raise ConfigError(f"none of the {data.Y.shape[0]} training rows has a label: a network needs at least one")
    if options.head.keeps_numbers:
        labels = np.arange(data.Y.shape[1], dtype=np.int32)
    labels = without_tail(labels, data.Y, options.trimmed)
    if isinstance(options.head, OrderedHead):
        labels = ordered_labels(options.head.order, labels, data, np.random.default_rng([seed, 1]))
    Y = canonical_csr(data.Y[:, labels])
    problem = NetworkProblem(options, data.X, Y, known_dev_rows(data, labels), seed, device_of(context))
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
    train(problem, schedule, context, Checkpoints.of(context.scratch, options.options(), seed, (data.X, data.Y)))
    return TrainedNetwork(problem.backbone.fitted(), labels, problem.head.fitted())


def without_tail(labels: Int32, Y: CSR, share: float) -> Int32:
    """The labels without a share of them, those with the fewest rows; at least one label stays."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])[labels]
    rarest = np.argsort(counts, kind="stable")[: min(int(share * len(labels)), len(labels) - 1)]
    return np.delete(labels, rarest)


def device_of(context: FitContext) -> torch.device:
    """Where to train: `auto` takes a GPU if there is one."""
    name = ("cuda" if torch.cuda.is_available() else "cpu") if context.device == "auto" else context.device
    return torch.device(name)


def known_dev_rows(data: TrainingData, labels: Int32) -> tuple[Matrix, CSR] | None:
    """Some dev rows, with those of their labels that a network knows; None where there are none."""
    rows = dev_sample(data.dev, DEV_ROWS)
    return None if rows is None else (rows[0], canonical_csr(rows[1][:, labels]))


@dataclass
class NetworkProblem:
    """The network, its head and its dev rows, as the training loop takes them."""

    options: NetworkOptions
    X: Matrix
    Y: CSR
    dev: tuple[Matrix, CSR] | None
    seed: int
    device: torch.device
    backbone: Backbone = field(init=False)
    head: TorchHead = field(init=False)
    module: torch.nn.Module = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        shares = np.asarray(self.Y.sum(axis=0), np.float32).ravel() / max(self.Y.shape[0], 1)
        self.backbone = Backbone(self.options, self.X, self.seed)
        self.head = self.options.head.module(self.Y.shape[1], self.backbone.dimensions, shares, self.seed + 1)
        self.module = torch.nn.ModuleDict({"backbone": self.backbone, "head": self.head}).to(self.device)
        for part in (self.backbone, self.head):
            part.tables = {name: table.to(self.device) for name, table in part.tables.items()}
        self.tables = self.backbone.tables | self.head.tables

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The head's loss, summed over the examples."""
        features = self.backbone(self.X[examples], lookup, generator)
        return self.head.loss(features, Targets.of(self.Y[examples]), lookup, generator)

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 of the dev rows."""
        if self.dev is None:
            return {}
        X, Y = self.dev
        return dev_metrics(self.head.fitted().topk(self.backbone.fitted().transform(X), DEPTH), Y)
