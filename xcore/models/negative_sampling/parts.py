"""What comes before training and is shared by trainings: the embedding, the projection and the sampler tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from xcore.embedding.pca import FittedPca
from xcore.models.negative_sampling.pairs import Positives
from xcore.numeric.matrices import CSR, Float32
from xcore.sampling.sampler import FittedTree, Tree

# After the last epoch; after each; or also at 1/128, 1/64, ..., 1/2 of the first.
Points = Literal["last", "epochs", "early"]


class LabelSampler(Positives):
    """A tree that mimics how labels follow from the features."""

    tree: Tree = Field(Tree(), description="How the tree is fitted.")

    def fit(self, Z: Float32, Y: CSR) -> FittedTree:
        """Fit to the positives of the rows Z float32 (n, k), as a model with the same positives numbers its classes."""
        split = self.split(Y)
        return self.tree.fit(Z[split.train.rows], split.train.classes, len(split.labels))


@dataclass(frozen=True)
class Parts:
    """What a training starts from.

    Attributes
    ----------
    embedding : FittedPca or None
        MakeResult the dense vectors of sparse features; None where rows came as vectors.
    projection : FittedPca or None
        From these vectors to the features of the tree.
    tree : FittedTree or None
        None for methods that need none.
    seconds, cpu_seconds : float
        Time that projection and tree took, by the clock and by all threads; learning curves begin there.
    """

    embedding: FittedPca | None = None
    projection: FittedPca | None = None
    tree: FittedTree | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def projected(self, X: Float32) -> Float32:
        """What the tree sees of vectors; nothing where there is no tree."""
        return np.zeros((len(X), 0), np.float32) if self.projection is None else self.projection.transform(X)


@dataclass(frozen=True)
class Watched:
    """Rows on which the learning curve is measured, in place of held-out ones.

    Attributes
    ----------
    X : float32 (n, d)
        Vectors.
    Y : CSR (n, L)
    points : 'last', 'epochs' or 'early'
        After the last epoch; after each; or also within the first one.
    """

    X: Float32
    Y: CSR
    points: Points = "epochs"
