"""The whole interface of a model: options that fit, and a fitted thing that predicts and saves itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from xcore.components import Component, Report
from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, TopK


@dataclass(frozen=True)
class TrainingData:
    """Rows to learn from.

    Attributes
    ----------
    X : CSR float32 (n, d)
        Features.
    Y : CSR float32 (n, L)
        Stored entries are the positives; a value in (0, 1] is the weight of that positive (1: certain).
    """

    X: CSR
    Y: CSR

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.Y.shape[0]:
            raise ConfigError(f"features have {self.X.shape[0]} rows, labels {self.Y.shape[0]}: they must match")
        if len(self.Y.data) and not (float(self.Y.data.min()) > 0 and float(self.Y.data.max()) <= 1):
            raise ConfigError(f"weights of positives must be in (0, 1], got {self.Y.data.min()} to {self.Y.data.max()}")


class Fitted(Protocol):
    """A trained model."""

    @property
    def n_features(self) -> int: ...

    @property
    def n_labels(self) -> int: ...

    def predict_topk(self, X: CSR, k: int) -> TopK:
        """The k best labels of each row of X (CSR, n x n_features)."""
        ...

    def save(self, directory: Path) -> None:
        """Write the model's files (Parquet, safetensors, JSON; never pickle) into an existing folder."""
        ...

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        ...


@runtime_checkable
class Shortlisting(Protocol):
    """A trained model that may score only some labels of a row, and can say what that costs."""

    def shortlist_recall(self, X: CSR, k: int) -> float | None:
        """The share of the exact k best labels that it finds; None where it scores all labels."""
        ...


class Model(Component):
    """Options of a model family; subclasses set a ``kind`` literal, `fit`, and `load`."""

    deterministic: ClassVar[bool] = True  # the same input gives the same bits

    def fit(self, data: TrainingData, rng: np.random.Generator, report: Report) -> Fitted:
        """Train on `data`; the same data, options and generator state give the same bits for any number of threads."""
        raise TypeError(f"{type(self).__name__} has no fit")

    @classmethod
    def load(cls, directory: Path) -> Fitted:
        """Open a model of this family."""
        raise TypeError(f"{cls.__name__} has no load")
