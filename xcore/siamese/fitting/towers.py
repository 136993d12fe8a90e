"""The encoder in training: the same for rows and label texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import gelu, linear, relu

from xcore.heads.fitting.base import array_of
from xcore.network.first_layer import TABLE, Vectors, sums_of_features
from xcore.numeric.matrices import csr
from xcore.siamese.encoder import Activation, Encoder
from xcore.training.data import Matrix

SHORTEST = 1e-12  # shorter vectors count as zeros

ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "none": lambda sums: sums,
}


class Towers(torch.nn.Module):
    """The encoder as torch has it.

    Attributes
    ----------
    table : tensor (n_features, D)
    residual : parameter or tensor (D, D)
        A parameter only where it is trained.
    """

    def __init__(self, encoder: Encoder, device: torch.device, *, trains_residual: bool) -> None:
        super().__init__()
        self.activation = encoder.activation
        self.table = torch.from_numpy(encoder.table.copy()).to(device)
        residual = torch.from_numpy(encoder.residual.copy()).to(device)
        self.residual = torch.nn.Parameter(residual) if trains_residual else residual

    def intermediate(self, rows: Matrix, lookup: Vectors) -> torch.Tensor:
        """f(x), (n, D)."""
        sums = sums_of_features(rows, lookup, self.table.device)
        return unit(ACTIVATIONS[self.activation](sums))

    def final(self, intermediate: torch.Tensor) -> torch.Tensor:
        """Enc(x), (n, D), from f(x)."""
        return unit(intermediate + relu(linear(intermediate, self.residual)))

    def frozen(self, name: str, rows: np.ndarray) -> torch.Tensor:
        """Rows of the table without a gradient: a lookup."""
        return self.table[torch.from_numpy(rows).to(self.table.device)]

    def present(self) -> Encoder:
        """The encoder with the present weights; on the CPU it shares their memory."""
        residual = self.residual.detach().cpu().numpy()
        return Encoder(self.table.cpu().numpy(), residual, self.activation)

    def fitted(self) -> Encoder:
        """The encoder with a copy of the present weights."""
        return Encoder(array_of(self.table), array_of(self.residual), self.activation)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors (n, D) scaled to length 1; vectors of zeros stay zero and have no gradient."""
    apply: Callable[[torch.Tensor], torch.Tensor] = _Unit.apply
    return apply(vectors)


class _Unit(torch.autograd.Function):
    """``normalize`` of torch with fewer passes over the vectors in its gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor) -> torch.Tensor:
        inverse: torch.Tensor = vectors.norm(dim=1, keepdim=True).reciprocal_()
        inverse.masked_fill_(inverse > 1 / SHORTEST, 0.0)
        scaled = vectors * inverse
        ctx.save_for_backward(scaled, inverse)
        return scaled

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        scaled, inverse = ctx.saved_tensors
        along = torch.linalg.vecdot(gradients[0], scaled)[:, None]
        across: torch.Tensor = torch.addcmul(gradients[0], scaled, along, value=-1).mul_(inverse)
        return across


def stacked(above: Matrix, below: Matrix) -> Matrix:
    """Rows of one form over others."""
    if not sp.issparse(above):
        return np.concatenate([above, below])
    both = sp.vstack([above, below], format="csr")
    return csr(both.data, both.indices, both.indptr, both.shape[1])


__all__ = ["TABLE", "Towers", "stacked", "unit"]
