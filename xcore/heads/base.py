"""What every head is: options that make a trainable head, and a trained head as plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from xcore.components import Component
from xcore.heads.order import LabelOrder
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Int64, TopK
from xcore.saved import Described

if TYPE_CHECKING:
    from xcore.heads.fitting.base import TorchHead


class FittedHead(Protocol):
    """A trained head. It knows classes, numbered from 0; the model knows which label each class is."""

    def topk(self, features: Float32, k: int) -> TopK:
        """The k best classes of some rows of features (n, d). A row's answer depends on that row alone."""
        ...

    def arrays(self) -> dict[str, Any]:
        """All weights, by name."""
        ...

    def about(self) -> dict[str, Any]:
        """What `About` of its kind reads."""
        ...


@runtime_checkable
class Distributing(Protocol):
    """A trained head that gives each row one distribution over its classes; see `Head.is_distribution`."""

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """Log probability of one class of each row of features (n,)."""
        ...


class HeadAbout(Described):
    """What a model's JSON file says of its head; a subclass says more."""

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedHead:
        """The head that is described, with its arrays from a file; every array is checked."""
        raise TypeError(f"{type(self).__name__} has no take")


class Head(Component):
    """Options of a head; subclasses set a ``kind`` literal and `module`."""

    @property
    def has_logits(self) -> bool:
        """Whether scores are logits, of which only differences mean something; else they are probabilities."""
        return False

    @property
    def is_distribution(self) -> bool:
        """Whether it learns one distribution over all classes of a row, and its trained head is `Distributing`."""
        return False

    @property
    def keeps_numbers(self) -> bool:
        """Whether classes are the numbers of all labels. Else they count the labels that have training rows."""
        return False

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> TorchHead:
        """The head before its training.

        Parameters
        ----------
        n_classes, dimensions : int
            What it tells apart, and the length of the features that it gets.
        shares : float32 (n_classes,)
            How often each class occurs: its share of the rows.
        seed : int
        """
        raise TypeError(f"{type(self).__name__} has no module")


class OrderedHead(Head):
    """Options of a head that treats neighbouring classes alike, so that their order means something."""

    order: LabelOrder = Field(
        "given",
        description="Order in which labels become classes. given: by number. sorted: by name. random: at random. "
        "clustered: labels of similar rows stand together.",
    )


def take_layer(file: ArrayFile, outputs: int, dimensions: int) -> tuple[Float32, Float32]:
    """Weights (outputs, dimensions) and biases (outputs,) of a saved head."""
    weights = file.take("head.weights", np.float32, (outputs, dimensions)).finite().array
    return weights, file.take("head.biases", np.float32, (outputs,)).finite().array


def logistic(scores: Float32) -> Float32:
    """Logits as probabilities."""
    odds: Float32 = np.exp(-np.maximum(scores, np.float32(-80)))
    return np.float32(1) / (np.float32(1) + odds)


def log_logistic(scores: Float32) -> Float32:
    """Logits as logarithms of probabilities."""
    found: Float32 = np.minimum(scores, 0) - np.log1p(np.exp(-np.abs(scores)))
    return found


def log_softmax(scores: Float32) -> Float32:
    """Logits (n, m) as logarithms of shares of each row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, dtype=np.float64, keepdims=True)
    found: Float32 = shifted - np.log(total).astype(np.float32)
    return found
