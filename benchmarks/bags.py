"""Settings of the networks over bags, chosen by held-out bags: which learning rate and length, then which attention.

A sixth of the training bags of seed 0 is held out. A setting is judged by the correlation of their label counts with
those that its predictions for single rows give: no label of a row and no test row is used. As in the paper, the
learning rate is chosen for deep-miml alone. tau is chosen with it, for co-attention with the embeddings of EAGLE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, Row, row
from xcore.data.readers.idx import opened
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.miml.agreement import count_correlation
from xcore.models.base import Model
from xcore.models.miml import CoAttention, DeepMiml
from xcore.numeric.matrices import binary_csr, csr, sparse_of_images
from xcore.training.context import FitContext
from xcore.training.data import Bags, LabelledBags, Matrix, RowsInMemory, TrainingData

RATES = {4: (0.003, 0.01), 50: (0.0003, 0.001, 0.003)}  # by the size of the bags
EPOCHS, TAUS = (6,), (0.1, 0.3, 1.0)
SHAPE = {"width": 128, "concepts": 5, "loss": "softmax", "batch_size": 512}
HELD_OUT = 6  # one bag in so many


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

    def correlation(self, model: Model) -> float:
        """Train on one part; how well the counts of the other part are reproduced."""
        own, other = self.kept(False), self.kept(True)
        n, n_labels = self.groups.n_rows, self.groups.n_labels
        nothing = csr(np.zeros(0), np.zeros(0), np.zeros(n + 1), n_labels)
        data = TrainingData(RowsInMemory(self.X, "image"), nothing, bags=Bags(own.members, own.Y, counted=True))
        fitted = model.fit(data, FitContext(rng=np.random.default_rng(0)))
        best = np.full(n, -1, np.int32)
        rows = np.unique(other.members.indices)
        best[rows] = fitted.predict_topk(self.X[rows], 1).labels[:, 0]
        return count_correlation(best, other)


def run(quick: bool) -> Iterator[Row]:
    """Every setting of both datasets; the best of each dataset and size of the bags is printed once more."""
    for name, size in product(("mnist",) if quick else ("mnist", "fashion-mnist"), RATES):
        yield from settings(name, size, quick)


def settings(name: str, size: int, quick: bool) -> Iterator[Row]:
    """The settings of one dataset and size of the bags."""
    folder = Path(os.environ.get("XC_DATA", ROOT / "../shared/data"))
    split, case = _split(folder / name, size, 3000 if quick else None), f"{name}, bags of {size}"
    tried: dict[tuple[float, int], float] = {}
    for rate, epochs in product(RATES[size][:1] if quick else RATES[size], EPOCHS):
        tried[rate, epochs] = split.correlation(DeepMiml(learning_rate=rate, epochs=epochs, **SHAPE))
        yield row("bags", case, f"deep-miml, rate {rate:g}, {epochs} epochs", tried[rate, epochs], "corr.")
    rate, epochs = max(tried, key=lambda setting: tried[setting])
    attention: dict[float, float] = {}
    for tau in TAUS[:1] if quick else TAUS:
        attention[tau] = split.correlation(_attention(tau, rate, epochs))
        yield row("bags", case, f"co-attention, tau {tau:g}", attention[tau], "corr.")
    best = max(attention, key=lambda tau: attention[tau])
    yield row("bags", case, f"chosen: rate {rate:g}, {epochs} epochs; tau", best, "")


def _attention(tau: float, rate: float, epochs: int) -> CoAttention:
    return CoAttention(tau=tau, learning_rate=rate, epochs=epochs, **SHAPE)


def _split(folder: Path, size: int, n_rows: int | None) -> Split:
    with opened(folder / "train-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(int(np.prod(file.sizes))), np.uint8).reshape(file.sizes)[:n_rows]
    with opened(folder / "train-labels-idx1-ubyte.gz") as file:
        labels = file.numbers(file.sizes[0])[:n_rows]
    Y = binary_csr(labels, np.arange(len(labels) + 1), int(labels.max()) + 1)
    groups = RandomGroups(size=size).group(sparse_of_images(X[:, :1, :1]), Y, np.random.default_rng(0))
    return Split(X, groups)
