"""Module I: training of the encoder, label by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from xcore.components import silent
from xcore.errors import ConfigError
from xcore.memory import TRAINED, need_array
from xcore.network.fitting import device_of
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, Int64
from xcore.numeric.parallel import single_threaded_blas
from xcore.siamese.dev_rows import DevRows
from xcore.siamese.encoder import Activation, Encoder, bag_of_tokens
from xcore.siamese.fitting.likelihood import Pairs, negative_loss, positive_loss, softmax_loss
from xcore.siamese.fitting.negatives import hardest_in_batch, nearest_wrong_rows, pairs_of_batch
from xcore.siamese.fitting.towers import TABLE, Towers, stacked
from xcore.siamese.label_rows import LabelRows, label_rows
from xcore.siamese.modules import FittedEncoder
from xcore.siamese.options import SiameseEncoder
from xcore.text.wordllama import WordLlama, package_vectors
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, canonical_csr
from xcore.training.dev_choice import DEV_METRIC
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup

TABLE_SPREAD = 0.1  # of a random table; only the directions of sums matter
RESIDUAL_SPREAD = 1e-3
FEWER_WORDS = "Set encoder.dimensions lower, or use fewer features, such as a smaller text.max_features."
FREQUENCY_POWER = 0.45  # of the release: how much more often frequent labels are drawn


def fit_encoder(options: SiameseEncoder, data: TrainingData, context: FitContext) -> FittedEncoder:
    """Train the encoder; dev rows, if there are any, choose when to stop and which weights to keep."""
    seed = int(context.rng.integers(2**31))
    X = bag_of_tokens(data.X)
    labels = label_rows(X, data.Y, data.labels, options.label_names)
    if not labels.is_trained.any():
        raise ConfigError(f"none of the {data.Y.shape[0]} training rows has a label: siamesexml needs at least one")
    terms = data.labels.terms if data.labels else None
    start = first_encoder(options, data.form, X.shape[1], seed, terms)
    problem = EncoderProblem(options, X, data.Y, labels, start, DevRows.of(data), seed, device_of(context))
    if options.epochs:
        kept = Checkpoints.of(context.scratch, options.options(), seed, (X, data.Y, labels.X))
        with single_threaded_blas():
            train(problem, problem.schedule, context, kept)
    encoder, total = problem.module.fitted(), max(problem.schedule.total, 1)
    context.report(total, total, encoder.norms())
    return FittedEncoder(encoder, encoder.intermediate(labels.X), labels.is_known)


def first_encoder(
    options: SiameseEncoder, form: RowForm, n_features: int, seed: int, terms: Sequence[str] | None = None
) -> Encoder:
    """The encoder before training.

    With table wordllama, sparse rows have the vector of the word of each column, which `terms` names.

    Given vectors keep their signs: they have no activation, and the residual block starts near 0. A random table has
    the activation of the profile, and the residual block starts as the identity, which leaves ``f(x) >= 0`` as it is.
    """
    rng = np.random.default_rng([seed, 1])
    if form == "vector" or options.table == "wordllama":
        table = _given_vectors(form, n_features, terms)
        size = table.shape[1]
        noise = rng.standard_normal((size, size), np.float32) * np.float32(RESIDUAL_SPREAD * size**-0.5)
        return Encoder(table, noise, "none")
    shape = (n_features, options.dimensions)
    need_array(shape, "the table of words in training", FEWER_WORDS, entry_bytes=TRAINED)
    table = rng.standard_normal(shape, np.float32) * np.float32(TABLE_SPREAD)
    activation: Activation = "relu" if options.profile == "paper" else "gelu"
    return Encoder(table, np.eye(options.dimensions, dtype=np.float32), activation)


def _given_vectors(form: RowForm, n_features: int, terms: Sequence[str] | None) -> Float32:
    """The identity for rows that are vectors, else the vectors of tokens or of words (n_features, D)."""
    if form == "vector":
        return np.eye(n_features, dtype=np.float32)
    if form == "tokens":
        return _wordllama_vectors(n_features)
    if terms is None:
        raise ConfigError(
            f"table: wordllama needs the word of each of the {n_features} features, and they are not known: set "
            "text.kind to tfidf or wordllama, or table to random"
        )
    return WordLlama().fit((), silent).transform(terms)


def _wordllama_vectors(n_tokens: int) -> Float32:
    vectors = package_vectors()
    if len(vectors) != n_tokens:
        raise ConfigError(
            f"table: wordllama has vectors of {len(vectors)} tokens, but the rows have {n_tokens}: set text.kind to "
            "wordllama, or table to random"
        )
    return vectors


@dataclass
class EncoderProblem:
    """Labels and rows of Module I, as the training loop takes them.

    An example is a draw of a label and one of its rows. Which ones is decided by seed and step.
    """

    options: SiameseEncoder
    X: Matrix
    Y: CSR
    labels: LabelRows
    start: Encoder
    dev: DevRows | None
    seed: int
    device: torch.device
    module: Towers = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False)
    schedule: Schedule = field(init=False)
    batch: Batch = field(init=False)
    offline: Int32 = field(init=False)

    def __post_init__(self) -> None:
        self.module = Towers(self.start, self.device, trains_residual=self.options.profile == "paper")
        self.tables = {TABLE: self.module.table}
        self._trained: Int64 = np.flatnonzero(self.labels.is_trained)
        self._of_labels = canonical_csr(self.Y.T)
        self._weights = np.concatenate([[0.0], np.cumsum(self._of_labels.data, dtype=np.float64)])
        counts = np.diff(self._of_labels.indptr)[self._trained].astype(np.float64)
        power = 0.0 if self.options.profile == "paper" else FREQUENCY_POWER
        self._label_ends = np.cumsum(counts**power)
        self.offline = np.full(self.Y.shape[1], NO_LABEL, np.int32)
        n_rows = int(np.count_nonzero(np.diff(self.Y.indptr)))
        self.schedule = Schedule(
            n_examples=max(len(self._trained), n_rows),
            epochs=self.options.epochs,
            batch_size=self.options.batch_size,
            learning_rate=self.options.learning_rate,
            weight_decay=self.options.weight_decay,
            seed=self.seed,
            patience=self.options.patience,
            select=DEV_METRIC,
        )

    def prepare(self, examples: Int64, step: int) -> None:
        """Draw the labels and rows of a step, and choose the negatives among the whole batch."""
        rng = np.random.default_rng([self.seed, 2, step])
        labels = self._drawn_labels(examples, rng)
        rows = self._drawn_rows(labels, rng)
        if self.options.loss == "softmax":
            none = np.empty((len(labels), 0), np.int64)
            self.batch = Batch(examples, labels, rows, none, none)
            return
        epoch, number = divmod(step, self.schedule.steps_per_epoch)
        refresh = self.options.refresh
        if refresh and number == 0 and epoch % refresh == 0 and epoch:
            self.offline = self._nearest_wrong(epoch)
        encoder = self.module.present()
        used, places = np.unique(labels, return_inverse=True)
        of_labels, of_rows = encoder.encode(self.labels.X[used])[places], encoder.encode(self.X[rows])
        n_online = self.options.negatives - (1 if epoch >= refresh > 0 else 0)
        is_positive = pairs_of_batch(self.Y, rows, labels)
        nearest = hardest_in_batch(of_labels, of_rows, is_positive, n_online)
        wrong_rows = np.column_stack([_chosen(rows, nearest), self.offline[labels]])
        n_labels = self.options.negatives if self.options.both_sides else 0
        wrong_labels = _chosen(labels, hardest_in_batch(of_rows, of_labels, is_positive.T.tocsr(), n_labels))
        self.batch = Batch(examples, labels, rows, wrong_rows, wrong_labels)

    def _drawn_labels(self, examples: Int64, rng: np.random.Generator) -> Int64:
        if self.options.profile == "paper":
            return self._trained[examples % len(self._trained)]
        drawn = rng.random(len(examples)) * self._label_ends[-1]
        places = np.minimum(np.searchsorted(self._label_ends, drawn, "right"), len(self._trained) - 1)
        labels: Int64 = self._trained[places]
        return labels

    def _drawn_rows(self, labels: Int64, rng: np.random.Generator) -> Int64:
        """A row of each label; a target q is drawn with a chance that grows with q."""
        first, end = self._of_labels.indptr[labels], self._of_labels.indptr[labels + 1]
        low, high = self._weights[first], self._weights[end]
        drawn = np.searchsorted(self._weights, low + rng.random(len(labels)) * (high - low), "right") - 1
        rows: Int64 = self._of_labels.indices[np.clip(drawn, first, end - 1)].astype(np.int64)
        return rows

    def _nearest_wrong(self, epoch: int) -> Int32:
        """For each trained label the nearest row that does not carry it, among some rows; -1 where none was found."""
        numbers = np.arange(self.Y.shape[0])
        if len(numbers) > self.options.refresh_rows:
            rng = np.random.default_rng([self.seed, 3, epoch])
            numbers = np.sort(rng.choice(numbers, self.options.refresh_rows, replace=False))
        encoder, found = self.module.present(), np.full(self.Y.shape[1], NO_LABEL, np.int32)
        embedded = encoder.encode(self.labels.X[self._trained])
        rows = encoder.encode(self.X[numbers])
        found[self._trained] = nearest_wrong_rows(embedded, rows, numbers, self.Y, self._trained)
        return found

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The loss of each pair of label and row with the negatives of both, summed over the examples."""
        own = self.batch.part(examples)
        of_labels = np.column_stack([own.labels, own.wrong_labels])
        of_rows = np.column_stack([own.rows, own.wrong_rows])
        labels, label_at = np.unique(np.maximum(of_labels, 0), return_inverse=True)
        rows, row_at = np.unique(np.maximum(of_rows, 0), return_inverse=True)
        both = self.module.intermediate(stacked(self.labels.X[labels], self.X[rows]), lookup)
        embedded = self.module.final(both)
        texts = embedded[torch.from_numpy(label_at.reshape(of_labels.shape))]
        paired = embedded[torch.from_numpy(len(labels) + row_at.reshape(of_rows.shape))]
        if self.options.loss == "softmax":
            return self._softmax(own, texts[:, 0], paired[:, 0])
        c, d = self.options.ceiling, self.options.steepness
        total = positive_loss((texts[:, 0] * paired[:, 0]).sum(dim=1), c, d).sum()
        for one, others, numbers in (
            (texts[:, 0], paired[:, 1:], own.wrong_rows),
            (paired[:, 0], texts[:, 1:], own.wrong_labels),
        ):
            wrong = negative_loss(torch.einsum("bd,bkd->bk", one, others), c, d)
            total = total + torch.where(torch.from_numpy(numbers != NO_LABEL).to(self.device), wrong, 0.0).sum()
        return total

    def _softmax(self, own: Batch, texts: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Each label chooses its row among those of the shard, and each row its label; the mean of both.

        Pairs that belong together by chance are no negatives, and they are no positives either.
        """
        belongs = pairs_of_batch(self.Y, own.rows, own.labels).toarray() > 0
        is_positive = torch.from_numpy(belongs).to(self.device)
        each = torch.arange(len(belongs), device=self.device)
        pairs = Pairs(each, each, torch.ones(len(belongs), device=self.device))
        cosines, temperature = texts @ rows.T, self.options.temperature
        both = softmax_loss(cosines, is_positive, pairs, temperature)
        both = both + softmax_loss(cosines.T, is_positive.T, pairs, temperature)
        return both / 2

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 of the dev rows by cosine with all known labels."""
        if self.dev is None:
            return {}
        encoder, known = self.module.present(), np.flatnonzero(self.labels.is_known)
        return self.dev.metrics(encoder.encode(self.dev.X), encoder.encode(self.labels.X[known]), known)

    def arrays(self) -> dict[str, Int32]:
        """What a checkpoint must hold beside the weights."""
        return {"offline": self.offline}

    def restore(self, arrays: Mapping[str, Int32]) -> None:
        """Go back to where `arrays` was taken."""
        self.offline = arrays["offline"]


@dataclass(frozen=True)
class Batch:
    """What one step looks at.

    Attributes
    ----------
    examples : int64 (B,)
        Ascending.
    labels, rows : int64 (B,)
        A label and a row of it.
    wrong_rows : int64 (B, kappa)
        Rows that do not carry the label; -1 for none.
    wrong_labels : int64 (B, kappa)
        Labels that the row does not carry; -1 for none.
    """

    examples: Int64
    labels: Int64
    rows: Int64
    wrong_rows: Int64
    wrong_labels: Int64

    def part(self, examples: Int64) -> Batch:
        """The part of a shard."""
        at = np.searchsorted(self.examples, examples)
        names = ("labels", "rows", "wrong_rows", "wrong_labels")
        return Batch(examples, *(getattr(self, name)[at] for name in names))


def _chosen(numbers: Int64, places: Int64) -> Int64:
    """Numbers at some places of a batch; -1 where the place is -1."""
    found: Int64 = np.where(places == NO_LABEL, NO_LABEL, numbers[places])
    return found
