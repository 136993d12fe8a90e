"""Modules III and IV: a classifier for each label, with the token table frozen (III) or trained too (IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from xcore.heads.fitting.base import array_of
from xcore.memory import TRAINED, need_array
from xcore.network.fitting import device_of
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, Int64
from xcore.siamese.dev_rows import DevRows
from xcore.siamese.encoder import Encoder, bag_of_tokens
from xcore.siamese.fitting.likelihood import Pairs, negative_loss, positive_loss, softmax_loss
from xcore.siamese.fitting.towers import TABLE, Towers, stacked, unit
from xcore.siamese.modules import FittedClassifiers, FittedEncoder, FittedShortlists, label_vectors
from xcore.siamese.options import Classifiers
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import Matrix, TrainingData
from xcore.training.dev_choice import DEV_METRIC
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup

ETA = "eta"
FEWER_LABELS = "Set encoder.dimensions lower, or use fewer labels."
MOST_POSITIVES = 64  # of a row that count in a step


def fit_classifiers(options: Classifiers, data: TrainingData, context: FitContext) -> FittedClassifiers:
    """Module III."""
    first: FittedEncoder = data.stage("encoder").fitted
    need_array(first.labels.shape, "the classifiers of all labels in training", FEWER_LABELS, entry_bytes=TRAINED)
    eta = np.zeros(first.labels.shape, np.float32)
    _, found, _ = _trained(options, data, context, first, FittedClassifiers(first.encoder.residual, eta), None)
    return found


def fit_jointly(
    options: Classifiers, data: TrainingData, context: FitContext, label_texts: Matrix
) -> tuple[FittedEncoder, FittedClassifiers, int]:
    """Module IV: goes on from Module III with the table trained too. `label_texts` are the rows of all labels.

    The third value is the number of steps that were reported.
    """
    return _trained(options, data, context, data.stage("encoder").fitted, data.stage("classifiers").fitted, label_texts)


def _trained(
    options: Classifiers,
    data: TrainingData,
    context: FitContext,
    first: FittedEncoder,
    before: FittedClassifiers,
    label_texts: Matrix | None,
) -> tuple[FittedEncoder, FittedClassifiers, int]:
    if not options.epochs:
        return first, before, 0
    seed = int(context.rng.integers(2**31))
    shortlists: FittedShortlists = data.stage("shortlists").fitted
    encoder = replace(first.encoder, residual=before.residual)
    rows = np.flatnonzero(np.diff(data.Y.indptr))
    X = bag_of_tokens(data.X)
    problem = ClassifierProblem(
        options, X, data.Y, rows, shortlists.negatives, encoder, first.labels, np.flatnonzero(first.is_known),
        before.eta, label_texts, DevRows.of(data), device_of(context),
    )  # fmt: skip
    schedule = Schedule(
        n_examples=len(rows),
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        seed=seed,
        patience=options.patience,
        select=DEV_METRIC,
        judges_start=True,
    )
    arrays = (X, data.Y, shortlists.negatives, encoder.table, encoder.residual, before.eta)
    train(problem, schedule, context, Checkpoints.of(context.scratch, options.options(), seed, arrays))
    found = problem.module.fitted()
    texts = first.labels if label_texts is None else found.intermediate(label_texts)
    eta = array_of(problem.tables[ETA])
    context.report(schedule.total, schedule.total, found.norms() | {"norm_eta": largest_length(eta)})
    return replace(first, encoder=found, labels=texts), FittedClassifiers(found.residual, eta), schedule.total


def largest_length(eta: Float32) -> float:
    """The (2, inf) norm of eta, which enters the bound of Theorem 5: the length of its longest vector."""
    return float(np.sqrt(np.square(eta).sum(axis=1, dtype=np.float64).max(initial=0)))


@dataclass
class ClassifierProblem:
    """Rows, their labels and their shortlists, as the training loop takes them.

    Attributes
    ----------
    rows : int64 (m,)
        Rows that have labels; an example is a place here.
    negatives : int32 (n, S)
    texts : float32 (L, D)
        f(z) of each label by the table before this module.
    label_texts : matrix (L, n_features) or None
        Rows of the labels, if the table is trained too (Module IV).
    """

    options: Classifiers
    X: Matrix
    Y: CSR
    rows: Int64
    negatives: Int32
    encoder: Encoder
    texts: Float32
    known: Int64
    eta: Float32
    label_texts: Matrix | None
    dev: DevRows | None
    device: torch.device
    module: Towers = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.module = Towers(self.encoder, self.device, trains_residual=True)
        tables = {ETA: torch.from_numpy(self.eta.copy()).to(self.device)}
        self.tables = tables if self.label_texts is None else tables | {TABLE: self.module.table}

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The loss of each row against its labels and its shortlist, summed over the examples.

        A target q counts as q of a positive and 1 - q of a negative.
        """
        numbers = self.rows[examples]
        labels, targets = self._pairs(numbers)
        used, places = np.unique(np.maximum(labels, 0), return_inverse=True)
        intermediate = self._intermediate(numbers, used, lookup)
        encoded = self.module.final(intermediate)
        vectors = unit(encoded[len(numbers) :] + lookup(ETA, used.astype(np.int64)))
        if self.options.loss == "softmax":
            return self._softmax(encoded[: len(numbers)], vectors, labels, targets, places.reshape(labels.shape))
        chosen = vectors[torch.from_numpy(places.reshape(-1))].view(*labels.shape, -1)
        cosines = torch.einsum("bd,bsd->bs", encoded[: len(numbers)], chosen)
        c, d = self.options.ceiling, self.options.steepness
        q = torch.from_numpy(targets).to(self.device)
        wrong = negative_loss(cosines, c, d)
        if self.options.cut:
            wrong = torch.where((q == 0) & (wrong < self.options.cut), 0.0, wrong)
        values = q * positive_loss(cosines, c, d) + (1 - q) * wrong
        return torch.where(torch.from_numpy(labels != NO_LABEL).to(self.device), values, 0.0).sum()

    def _softmax(
        self, rows: torch.Tensor, vectors: torch.Tensor, labels: Int64, targets: Float32, places: Int64
    ) -> torch.Tensor:
        """The mean cross-entropy of the labels of each row against the labels of all shortlists of the shard."""
        is_own = (labels != NO_LABEL) & (targets > 0)
        weights = (targets / np.maximum(is_own.sum(axis=1, keepdims=True), 1))[is_own]
        found = (np.nonzero(is_own)[0], places[is_own], weights.astype(np.float32))
        pairs = Pairs(*(torch.from_numpy(array).to(self.device) for array in found))
        is_positive = torch.zeros((len(rows), len(vectors)), dtype=torch.bool, device=self.device)
        is_positive[pairs.rows, pairs.columns] = True
        return softmax_loss(rows @ vectors.T, is_positive, pairs, self.options.temperature)

    def _pairs(self, numbers: Int64) -> tuple[Int64, Float32]:
        """Labels (b, p + S) of some rows, their own first, and the targets; -1 for none."""
        starts, sizes = self.Y.indptr[numbers], np.minimum(np.diff(self.Y.indptr)[numbers], MOST_POSITIVES)
        column = np.arange(int(sizes.max()))
        is_there = column < sizes[:, None]
        at = np.where(is_there, starts[:, None] + column, 0)
        own = np.where(is_there, self.Y.indices[at], NO_LABEL)
        negatives = self.negatives[numbers]
        targets = np.concatenate([np.where(is_there, self.Y.data[at], 0), np.zeros(negatives.shape)], axis=1)
        return np.concatenate([own, negatives], axis=1).astype(np.int64), targets.astype(np.float32)

    def _intermediate(self, numbers: Int64, labels: Int64, lookup: Lookup) -> torch.Tensor:
        """f(x) of some rows, and below them f(z) of some labels."""
        if self.label_texts is not None:
            return self.module.intermediate(stacked(self.X[numbers], self.label_texts[labels]), lookup)
        rows = self.module.intermediate(self.X[numbers], self.module.frozen)
        return torch.cat([rows, torch.from_numpy(self.texts[labels]).to(self.device)])

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 of the dev rows by the classifiers of all known labels."""
        if self.dev is None:
            return {}
        encoder, eta = self.module.present(), self.tables[ETA].cpu().numpy()
        texts = self.texts[self.known]
        if self.label_texts is not None:
            texts = encoder.intermediate(self.label_texts[self.known])
        vectors = label_vectors(encoder, texts, eta[self.known])
        return self.dev.metrics(encoder.encode(self.dev.X), vectors, self.known)
