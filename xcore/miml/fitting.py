"""Training of networks over bags by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import linear, relu

from xcore.errors import ConfigError
from xcore.heads.fitting.base import array_of
from xcore.memory import TRAINED, need_array
from xcore.miml.concepts import Concepts, similarities
from xcore.miml.losses import bag_loss
from xcore.miml.options import MimlOptions
from xcore.miml.pooling import BagRows
from xcore.network.first_layer import TABLE, sums_of_features
from xcore.network.fitting import device_of, known_dev_rows
from xcore.numeric.matrices import CSR, Float32, Int32, Int64, row_blocks, topk_of_dense, vectors_of_images
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import LabelledBags, Matrix, TrainingData
from xcore.training.dev_choice import DEPTH, DEV_METRIC, dev_metrics
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup

BLOCK_ROWS = 4096
SPREAD = 0.15  # of the first values of hidden units; larger ones let the best rows of bags be chosen by chance


@dataclass(frozen=True)
class Attention:
    """What makes the mask.

    Attributes
    ----------
    tau : float
        Hardness of the assignment.
    embeddings : float32 (m, d)
        Of the labels that the network knows.
    """

    tau: float
    embeddings: Float32

    def scores(self, X: Matrix) -> Float32:
        """``tau x l'`` for unit rows x and label embeddings l, float32 (n, m)."""
        return np.float32(self.tau) * similarities(X, self.embeddings)


def known_labels(bags: LabelledBags) -> Int32:
    """The labels that some bag carries, ascending."""
    labels: Int32 = np.unique(bags.Y.indices[bags.Y.data > 0]).astype(np.int32)
    if not len(labels):
        raise ConfigError(f"none of the {bags.Y.shape[0]} bags has a label: a network needs at least one")
    return labels


def fit_concepts(
    options: MimlOptions,
    data: TrainingData,
    bags: LabelledBags,
    labels: Int32,
    attention: Attention | None,
    context: FitContext,
) -> Concepts:
    """Train on bags and their labels; dev rows, if there are any, choose when to stop and which weights to keep."""
    seed = int(context.rng.integers(2**31))
    filled = np.flatnonzero(np.diff(bags.members.indptr) > 0)
    if not len(filled):
        raise ConfigError(f"all of the {bags.members.shape[0]} bags are empty: training needs bags with rows")
    used = LabelledBags(bags.members[filled], bags.Y[filled][:, labels].tocsr(), bags.counted)
    problem = MimlProblem(options, data.X, used, attention, known_dev_rows(data, labels), seed, device_of(context))
    mean_size = used.members.nnz / len(filled)
    schedule = Schedule(
        n_examples=len(filled),
        epochs=options.epochs,
        batch_size=max(1, round(options.batch_size / mean_size)),
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        seed=seed,
        patience=options.patience,
        select=DEV_METRIC,
    )
    kept = Checkpoints.of(context.scratch, options.options(), seed, (data.X, bags.members, bags.Y))
    train(problem, schedule, context, kept)
    return problem.concepts()


class ConceptModule(torch.nn.Module):
    """The weights. For sparse rows the table of the input features is kept apart: few of its rows change in a step."""

    def __init__(
        self,
        table: torch.Tensor | None,
        hidden_bias: torch.Tensor,
        shape: tuple[int, int, int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.table = None if table is None else torch.nn.Parameter(table)
        self.hidden_bias = torch.nn.Parameter(hidden_bias)
        n_concepts, n_labels, width = shape
        size = (n_concepts * n_labels, width)
        need_array(size, "the concepts of all labels in training", "Set concepts or width lower.", entry_bytes=TRAINED)
        weights = torch.randn(size, generator=generator) * (3 * width) ** -0.5
        self.weights = torch.nn.Parameter(weights)
        self.concept_bias = torch.nn.Parameter(torch.zeros(len(weights)))
        self.label_bias = torch.nn.Parameter(torch.zeros(n_labels))


@dataclass
class MimlProblem:
    """The network, the loss of its bags and its dev rows, as the training loop takes them."""

    options: MimlOptions
    X: Matrix
    bags: LabelledBags
    attention: Attention | None
    dev: tuple[Matrix, CSR] | None
    seed: int
    device: torch.device
    module: ConceptModule = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        mean, spread = _moments(self.X)
        n_labels, width = self.bags.Y.shape[1], self.options.width
        # Hidden units begin small and with mean 0, whatever the scale and the mean of the rows.
        size = (len(mean), width)
        need_array(size, "the table of input features in training", "Set width lower.", entry_bytes=TRAINED)
        table = torch.randn(size, generator=generator) * float(SPREAD / np.sqrt(max(spread, 1e-12)))
        hidden_bias = -(torch.from_numpy(mean.astype(np.float32)) @ table)
        shape = (self.options.concepts, n_labels, width)
        is_sparse = sp.issparse(self.X)
        self.module = ConceptModule(None if is_sparse else table, hidden_bias, shape, generator)
        if self.options.loss in ("logistic", "count"):  # rows begin at the labels' frequencies, not at one half each
            rate = np.asarray(self.bags.Y.sum(axis=0), np.float64).ravel() / max(self.bags.members.nnz, 1)
            rate = np.clip(rate, 1e-6, 1 - 1e-6)
            self.module.label_bias.data.copy_(torch.from_numpy(np.log(rate / (1 - rate)).astype(np.float32)))
        self.module.to(self.device)
        self.tables = {TABLE: table.to(self.device)} if is_sparse else {}

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The loss of some bags, summed. Memory O(rows of these bags)."""
        bags = BagRows.of(self.bags.members, examples)
        module = self.module
        table = module.table
        vectors = lookup if table is None else lambda name, rows: table
        hidden = relu(sums_of_features(self.X[bags.rows], vectors, self.device) + module.hidden_bias)
        found = relu(linear(hidden, module.weights, module.concept_bias))
        values = found.view(len(bags.rows), self.options.concepts, -1).amax(dim=1)
        mask = None
        if self.attention is not None:
            mask = torch.from_numpy(bags.mask(self.attention.scores(self.X[bags.rows]))).to(self.device)
        counts = self.bags.Y[examples].toarray()
        return bag_loss(self.options.loss, values, module.label_bias, bags, mask, counts, self.bags.counted)

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 of the dev rows, each by itself."""
        if self.dev is None:
            return {}
        X, Y = self.dev
        concepts = self.concepts()
        return dev_metrics(topk_of_dense(concepts.values(X) + concepts.label_bias, DEPTH), Y)

    def concepts(self) -> Concepts:
        """The present weights."""
        module = self.module
        values = (module.hidden_bias, module.weights, module.concept_bias, module.label_bias)
        table = self.tables[TABLE] if module.table is None else module.table
        return Concepts(array_of(table), *(array_of(value) for value in values))


def _moments(X: Matrix) -> tuple[Float32, float]:
    """The mean row (d,), and the mean squared distance of the rows to it."""
    n, d = X.shape[0], int(np.prod(X.shape[1:]))
    total, square = np.zeros(d), 0.0
    for part in row_blocks(n, BLOCK_ROWS):
        block = X[part]
        if not sp.issparse(block):
            block = vectors_of_images(block) if block.dtype == np.uint8 else block
        total += np.asarray(block.sum(axis=0, dtype=np.float64)).ravel()
        square += float(np.square(block.data if sp.issparse(block) else block).sum(dtype=np.float64))
    mean = total / max(n, 1)
    return mean.astype(np.float32), square / max(n, 1) - float(mean @ mean)
