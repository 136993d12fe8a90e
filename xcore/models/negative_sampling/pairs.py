"""Training rows as pairs of a row and a class, and the rows held out to draw the learning curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from xcore.components import Component
from xcore.errors import ConfigError
from xcore.numeric.draws import keys_of
from xcore.numeric.matrices import CSR, Float32, Int32, Int64

Reduction = Literal["all", "first"]
HELD_OUT_SEED = 36528475  # that of the released code
DRAWN_SEED = 1


@dataclass(frozen=True)
class Pairs:
    """Positives.

    Attributes
    ----------
    rows, classes : int32 (n_pairs,)
        By ascending row.
    weights : float32 (n_pairs,)
    """

    rows: Int32
    classes: Int32
    weights: Float32

    @classmethod
    def of(cls, Y: CSR, reduction: Reduction) -> Pairs:
        """The stored entries of Y, or of each row only the one with the smallest label id."""
        rows = np.repeat(np.arange(Y.shape[0], dtype=np.int32), np.diff(Y.indptr))
        order = np.lexsort((Y.indices, rows))
        if reduction == "first":
            order = order[np.diff(rows, prepend=-1) > 0]  # rows are in order already
        return cls(rows[order], Y.indices[order].astype(np.int32), Y.data[order].astype(np.float32))

    def __len__(self) -> int:
        return len(self.rows)

    def drawn(self) -> Pairs:
        """Each positive with its weight as chance, drawn by its place alone. Positives of weight 1 are always there."""
        keys = keys_of(np.uint64(DRAWN_SEED), 0, np.arange(len(self)))
        draws = (keys >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
        return self[np.flatnonzero(draws < self.weights)]

    def __getitem__(self, chosen: Int64) -> Pairs:
        return Pairs(self.rows[chosen], self.classes[chosen], self.weights[chosen])


@dataclass(frozen=True)
class Split:
    """Pairs to train on, and pairs of other rows; classes count the labels that are trained on.

    Attributes
    ----------
    labels : int32 (n_classes,)
        Label id of each class, ascending.
    """

    train: Pairs
    held_out: Pairs
    labels: Int32

    @classmethod
    def of(cls, Y: CSR, reduction: Reduction, n_held_out: int, rng: np.random.Generator) -> Split:
        """Hold out some of the rows that have labels; their labels that no training row has are left out."""
        pairs = Pairs.of(Y, reduction)
        if not len(pairs):
            raise ConfigError(
                f"none of the {Y.shape[0]} training rows has a label: negative-sampling needs at least one positive"
            )
        with_labels = np.unique(pairs.rows)
        chosen = rng.permutation(with_labels)[: min(n_held_out, len(with_labels) - 1)]
        is_held = np.isin(pairs.rows, chosen)
        train, held_out = pairs[np.flatnonzero(~is_held)], pairs[np.flatnonzero(is_held)]
        labels = np.unique(train.classes)
        held_out = held_out[np.flatnonzero(np.isin(held_out.classes, labels))]
        return cls(_renamed(train, labels), _renamed(held_out, labels), labels)

    def of_others(self, Y: CSR, reduction: Reduction) -> Pairs:
        """The positives of other rows. Labels that are not trained on are left out."""
        pairs = Pairs.of(Y, reduction)
        return _renamed(pairs[np.flatnonzero(np.isin(pairs.classes, self.labels))], self.labels)


class Positives(Component):
    """What is trained on. The same labels give the same positives to a sampler and to all models that share it."""

    labels: Reduction = Field(
        "all",
        description="Which labels of a row are positives. all: each label; first: only the label with the smallest id.",
    )
    held_out_share: float = Field(
        0.05,
        ge=0,
        le=0.5,
        description="Share of the rows that is not trained on. The learning curve is measured on these rows, and "
        "they say when to stop.",
    )
    max_held_out: int = Field(1000, ge=0, description="Maximum number of rows that are held out.")

    def split(self, Y: CSR) -> Split:
        """The positives of the rows of Y, but for those that are held out, which no seed changes."""
        n_held_out = min(self.max_held_out, int(self.held_out_share * Y.shape[0]))
        return Split.of(Y, self.labels, n_held_out, np.random.default_rng(HELD_OUT_SEED))


def _renamed(pairs: Pairs, labels: Int32) -> Pairs:
    return Pairs(pairs.rows, np.searchsorted(labels, pairs.classes).astype(np.int32), pairs.weights)
