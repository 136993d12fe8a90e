"""What the training of a network asks of a head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from xcore.heads.base import FittedHead
from xcore.memory import TRAINED, need_array
from xcore.numeric.matrices import CSR, Float32, Int64
from xcore.training.shards import Lookup

SMALLEST_SHARE = 1e-6
NARROWER = "Take a narrower last layer, or a head with fewer weights, such as mhp."


@dataclass(frozen=True)
class Targets:
    """The classes of some rows.

    Attributes
    ----------
    n_rows, n_classes : int
    rows, classes : int64 (m,)
        One pair per class of a row, by row and class.
    values : float32 (m,)
        Chance that the class is the row's.
    """

    n_rows: int
    n_classes: int
    rows: Int64
    classes: Int64
    values: Float32

    @classmethod
    def of(cls, Y: CSR) -> Targets:
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        return cls(Y.shape[0], Y.shape[1], rows, Y.indices.astype(np.int64), np.asarray(Y.data, np.float32))


class TorchHead(torch.nn.Module):
    """A head in training.

    Attributes
    ----------
    tables : dict of tensor
        Large tables of which a step changes some rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, torch.Tensor] = {}

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The sum of the losses of some rows of features (n, d)."""
        raise TypeError(f"{type(self).__name__} has no loss")

    def fitted(self) -> FittedHead:
        """The head with its present weights."""
        raise TypeError(f"{type(self).__name__} has no trained form")


def weights(shape: tuple[int, int], seed: int) -> torch.nn.Parameter:
    """First weights of a layer (out, in)."""
    need_array(shape, "the weights of a layer in training", NARROWER, entry_bytes=TRAINED)
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.Parameter(torch.randn(shape, generator=generator) * shape[1] ** -0.5)


def log_odds(shares: npt.NDArray[np.floating]) -> torch.nn.Parameter:
    """First biases of independent outputs: what they say without features is how often they are on."""
    kept = np.clip(shares, SMALLEST_SHARE, 1 - SMALLEST_SHARE)
    return torch.nn.Parameter(torch.from_numpy(np.log(kept / (1 - kept)).astype(np.float32)))


def log_shares(shares: npt.NDArray[np.floating]) -> torch.nn.Parameter:
    """First biases of outputs that share a distribution."""
    return torch.nn.Parameter(torch.from_numpy(np.log(np.maximum(shares, SMALLEST_SHARE)).astype(np.float32)))


def array_of(value: torch.Tensor) -> Float32:
    """A copy of a tensor as an array."""
    return np.array(value.detach().cpu().numpy(), np.float32)


def on(x: torch.Tensor, values: npt.NDArray[np.generic]) -> torch.Tensor:
    """An array as a tensor where `x` is."""
    return torch.from_numpy(values).to(x.device)
