"""What a trained model may say about why it answers as it does."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from xcore.numeric.matrices import Float64, Int32
from xcore.training.data import Matrix


class Evidence(NamedTuple):
    """Why a memory answers as it does: the nearest keys of each query, nearest first.

    Attributes
    ----------
    rows : int32 (q, n)
        Number of the training row, among those with labels; -1 where the key is a label name.
    labels : int32 (q, n)
        Label whose name the key is; -1 where the key is a training row.
    weights : float64 (q, n)
        Share of the key in the answer.
    """

    rows: Int32
    labels: Int32
    weights: Float64


@runtime_checkable
class Remembering(Protocol):
    """A trained model that answers by training rows and label names, and can say by which."""

    def evidence(self, X: Matrix, n: int) -> Evidence:
        """The n keys that weigh most in the answer to each row."""
        ...
