"""Settings of the networks over bags, chosen by held-out bags: which learning rate, which attention, which labels.

A sixth of the training bags of seed 0 is held out. A setting is judged by the correlation of their label counts with
those that its predictions for single rows give, the mean of three trainings: no label of a row and no test row is used.
As in the paper, the learning rate is chosen for deep-miml alone. tau is chosen with it, for co-attention with the
embeddings of EAGLE. For the network on imputed labels, hard or soft assignment and the number of random features are
chosen the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness import ROOT, Row, row
from xcore.data.readers.idx import opened
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.heads.one_hot import OneHot
from xcore.imputation.base import Imputer
from xcore.imputation.disaggregate import Disaggregate
from xcore.miml.agreement import count_correlation
from xcore.miml.options import BagLoss
from xcore.models.base import Model
from xcore.models.miml import CoAttention, DeepMiml
from xcore.models.network import NeuralNetwork
from xcore.numeric.matrices import NO_LABEL, binary_csr, csr, sparse_of_images
from xcore.training.context import FitContext
from xcore.training.data import Bags, LabelledBags, Matrix, RowsInMemory, TrainingData
from xcore.training.stages import prepare

RATES = {4: (0.003, 0.01, 0.03), 50: (0.0003, 0.001, 0.003)}  # by the size of the bags
TAUS = (0.03, 0.1, 0.3, 1.0)
EPOCHS, BATCH, WIDTH = 6, 512, 128
SHAPE: dict[str, Any] = {"width": WIDTH, "concepts": 5, "batch_size": BATCH, "epochs": EPOCHS}
LOSSES: tuple[BagLoss, ...] = ("proportion", "count")
ASSIGNMENTS: tuple[Literal["hard", "soft"], ...] = ("hard", "soft")
RANDOM_FEATURES = (300, 1000)
HELD_OUT = 6  # one bag in so many
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Split:
    """Training rows in bags, some of which are held out."""

    X: Matrix
    groups: Groups

    def kept(self, is_held_out: bool) -> LabelledBags:
        """One part of the bags."""
        bags = np.flatnonzero((np.arange(self.groups.n_groups) % HELD_OUT == 0) == is_held_out)
        part = self.groups.take(bags)
        return LabelledBags(part.members, part.labels, counted=True)

    def correlation(self, model: Model, data: TrainingData, seeds: Sequence[int]) -> tuple[float, float]:
        """Train on one part; how well the counts of the other part are reproduced: mean and deviation over seeds."""
        other, found = self.kept(True), []
        rows = np.unique(other.members.indices)
        for seed in seeds:
            fitted = model.fit(data, FitContext(rng=np.random.default_rng(seed)))
            best = np.full(self.groups.n_rows, NO_LABEL, np.int32)
            best[rows] = fitted.predict_topk(self.X[rows], 1).labels[:, 0]
            found.append(count_correlation(best, other))
        return float(np.mean(found)), float(np.std(found))

    def bags(self) -> TrainingData:
        """The part to train on, for models that learn from bags."""
        own = self.kept(False)
        nothing = csr(np.zeros(0), np.zeros(0), np.zeros(self.groups.n_rows + 1), self.groups.n_labels)
        return TrainingData(RowsInMemory(self.X, "image"), nothing, bags=Bags(own.members, own.Y, counted=True))

    def imputed(self, imputer: Imputer) -> TrainingData:
        """The part to train on, with labels of its rows that an imputer makes."""
        own = self.kept(False)
        rows = np.unique(own.members.indices)
        groups = Groups(own.members[:, rows].tocsr(), own.Y, "list")
        found = imputer.impute(sparse_of_images(self.X[rows]), groups, np.random.default_rng(0))
        return TrainingData(RowsInMemory(self.X[rows], "image"), found.Y, reading=found.reading)


def run(quick: bool) -> Iterator[Row]:
    """Every setting of both datasets; the best of each dataset and size of the bags is printed once more."""
    for name, size in product(("mnist",) if quick else ("mnist", "fashion-mnist"), RATES):
        yield from settings(name, size, quick)


def settings(name: str, size: int, quick: bool) -> Iterator[Row]:
    """The settings of one dataset and size of the bags."""
    folder = Path(os.environ.get("XC_DATA", ROOT / "../shared/data"))
    split, case = _split(folder / name, size, 3000 if quick else None), f"{name}, bags of {size}"
    some = 1 if quick else None
    data, found = split.bags(), Found(case)

    def tried(kind: str, setting: Any, model: Model, data: TrainingData) -> Iterator[Row]:
        mean, deviation = split.correlation(model, data, SEEDS[:some])
        found.values[kind, setting] = mean
        yield row("bags", case, f"{kind} {setting}, sd {deviation:.3f}", mean, "corr.")

    for rate in RATES[size][:some]:
        yield from tried("deep-miml, rate", rate, DeepMiml(loss="softmax", learning_rate=rate, **SHAPE), data)
    rate = found.best("deep-miml, rate")
    data = prepare(CoAttention(), data, FitContext(rng=np.random.default_rng(0)))
    for tau in TAUS[:some]:
        model = CoAttention(loss="softmax", tau=tau, learning_rate=rate, **SHAPE)
        yield from tried("co-attention, tau", tau, model, data)
    for loss in LOSSES[:some]:
        yield from tried("deep-miml, loss", loss, DeepMiml(loss=loss, learning_rate=rate, **SHAPE), data)
    network = NeuralNetwork(
        head=OneHot(loss="softmax"), channels=(), width=WIDTH, batch_size=BATCH, epochs=EPOCHS, learning_rate=rate
    )
    for assign in ASSIGNMENTS[:some]:
        yield from tried("network, assign", assign, network, split.imputed(Disaggregate(assign=assign)))
    for count in RANDOM_FEATURES[:some]:
        yield from tried("network, random features", count, network, split.imputed(Disaggregate(random_features=count)))
    yield row(
        "bags",
        case,
        f"chosen: rate {rate:g}; assign {found.best('network, assign')}; tau",
        found.best("co-attention, tau"),
        "",
    )


@dataclass
class Found:
    """What each setting reached."""

    case: str
    values: dict[tuple[str, Any], float] = field(default_factory=dict)

    def best(self, kind: str) -> Any:
        """The best setting of a kind."""
        return max((key for key in self.values if key[0] == kind), key=lambda key: self.values[key])[1]


def _split(folder: Path, size: int, n_rows: int | None) -> Split:
    with opened(folder / "train-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(int(np.prod(file.sizes))), np.uint8).reshape(file.sizes)[:n_rows]
    with opened(folder / "train-labels-idx1-ubyte.gz") as file:
        labels = file.numbers(file.sizes[0])[:n_rows]
    Y = binary_csr(labels, np.arange(len(labels) + 1), int(labels.max()) + 1)
    groups = RandomGroups(size=size).group(sparse_of_images(X[:, :1, :1]), Y, np.random.default_rng(0))
    return Split(X, groups)
