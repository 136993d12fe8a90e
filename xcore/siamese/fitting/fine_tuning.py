"""Training of a transformer's last layers on pairs of a row and the name of one of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from xcore.components import silent
from xcore.errors import ConfigError
from xcore.heads.fitting.base import array_of
from xcore.network.fitting import device_of
from xcore.numeric.matrices import CSR, Int32, Int64, row_blocks
from xcore.siamese.dev_rows import DevRows
from xcore.siamese.fine_tuning import FineTuning
from xcore.siamese.fitting.likelihood import Pairs, softmax_loss
from xcore.siamese.fitting.negatives import pairs_of_batch
from xcore.text.encoding import TorchEncoder
from xcore.text.transformer import FittedTransformer
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import TrainingData
from xcore.training.dev_choice import DEV_METRIC
from xcore.training.loop import train
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup

BLOCK_TEXTS = 8192  # that are split into tokens at a time
TEXTS_AT_ONCE = 32  # of similar length, where dev rows are measured


def fine_tune(options: FineTuning, data: TrainingData, context: FitContext) -> FittedTransformer:
    """The transformer with trained last layers; dev rows, if there are any, choose the weights to keep."""
    seed = int(context.rng.integers(2**31))
    if data.labels is None or not data.labels.is_named:
        raise ConfigError(
            "fine_tuning trains on pairs of a row and a label name, but the labels have no names: give a label table "
            "with names (data.labels), or leave fine_tuning empty"
        )
    if not data.Y.nnz:
        raise ConfigError(f"none of the {data.Y.shape[0]} training rows has a label: fine_tuning needs at least one")
    start = options.transformer.fit((), silent)
    encoder = TorchEncoder.of(
        start.config, start.tokenizer, start.weights, start.pooling, options.transformer.max_tokens
    )
    texts, names = (_tokens(encoder, own) for own in (data.X, data.labels.texts))
    dev = DevRows.of(data)
    problem = FineTuningProblem(options, encoder, texts, names, data.labels.texts, data.Y, dev, device_of(context))
    schedule = Schedule(
        n_examples=len(problem.rows),
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        seed=seed,
        patience=options.patience,
        select=DEV_METRIC,
        judges_start=True,
    )
    arrays = (np.concatenate(texts), np.concatenate(names), data.Y, *start.weights.values())
    train(problem, schedule, context, Checkpoints.of(context.scratch, options.options(), seed, arrays))
    return replace(start, weights={name: array_of(value) for name, value in encoder.network.named_parameters()})


def _tokens(encoder: TorchEncoder, texts: Sequence[str]) -> list[Int32]:
    """The token numbers of each text."""
    parts = row_blocks(len(texts), BLOCK_TEXTS)
    return [np.array(ids, np.int32) for part in parts for ids in encoder.split(list(texts[part]))]


@dataclass
class FineTuningProblem:
    """Rows and label names as tokens, as the training loop takes them.

    Attributes
    ----------
    texts, names : list of int32 arrays
        Tokens of each row (n) and of each label's name (L).
    label_texts : sequence of str (L,)
    rows : int64 (m,)
        Rows that have labels; an example is a place here.
    module : ModuleList
        The layers that are trained.
    """

    options: FineTuning
    encoder: TorchEncoder
    texts: list[Int32]
    names: list[Int32]
    label_texts: Sequence[str]
    Y: CSR
    dev: DevRows | None
    device: torch.device
    rows: Int64 = field(init=False)
    module: torch.nn.ModuleList = field(init=False)
    tables: Mapping[str, torch.Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = np.flatnonzero(np.diff(self.Y.indptr))
        self.encoder.network.to(self.device).requires_grad_(False)
        self.module = self.encoder.last_layers(self.options.layers).requires_grad_(True)

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The mean of both softmax losses of each row with one of its labels, summed over the examples."""
        rows = self.rows[examples]
        places = self._drawn(rows, generator)
        labels, columns = np.unique(self.Y.indices[places], return_inverse=True)
        of_rows = self.encoder.vectors([self.texts[row] for row in rows])
        of_labels = self.encoder.vectors([self.names[label] for label in labels])
        belongs = pairs_of_batch(self.Y, rows, labels).toarray() > 0
        found = np.arange(len(rows)), columns, self.Y.data[places]
        each, names, weights = (torch.from_numpy(array).to(self.device) for array in found)
        is_positive, cosines = torch.from_numpy(belongs).to(self.device), of_labels @ of_rows.T
        temperature = self.options.temperature
        both = softmax_loss(cosines, is_positive, Pairs(names, each, weights), temperature)
        return (both + softmax_loss(cosines.T, is_positive.T, Pairs(each, names, weights), temperature)) / 2

    def _drawn(self, rows: Int64, generator: torch.Generator) -> Int64:
        """The place in Y of one label of each row, at random."""
        sizes = np.diff(self.Y.indptr)[rows]
        drawn = torch.rand(len(rows), generator=generator, device=generator.device).cpu().numpy()
        places: Int64 = self.Y.indptr[rows] + np.minimum((drawn * sizes).astype(np.int64), sizes - 1)
        return places

    def evaluate(self) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 of the dev rows by cosine with the names of all labels."""
        if self.dev is None:
            return {}
        rows, names = (self.encoder.encode(list(own), TEXTS_AT_ONCE) for own in (self.dev.X, self.label_texts))
        return self.dev.metrics(rows, names, np.arange(len(names)))
