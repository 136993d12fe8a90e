"""Losses of cosines: the likelihood p(+1 | v) = c exp(d (v - 1)) of a pair, and a softmax over many labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import softplus

LOWEST = -1e4  # in place of the logarithm of 0, for a row without negatives
SMALLEST = 1e-30


def positive_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(+1 | v) = ln(1 / c) + d (1 - v)."""
    return steepness * (1 - cosines) - math.log(ceiling)


def negative_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(-1 | v) = -ln(1 - c exp(d (v - 1))); finite for c < 1, also where rounding brings v a little above 1."""
    return -torch.log1p(-ceiling * torch.exp(steepness * (cosines.clamp(max=1.0) - 1)))


class Pairs(NamedTuple):
    """Positive pairs of a matrix of cosines, each once: row, column and weight of each (p,)."""

    rows: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor


def softmax_loss(cosines: torch.Tensor, is_positive: torch.Tensor, pairs: Pairs, temperature: float) -> torch.Tensor:
    """Cross-entropy of each positive pair against all negatives of its row; other positives of the row do not compete.

    Parameters
    ----------
    cosines : tensor (n, m)
    is_positive : bool tensor (n, m)
        What is no negative.
    pairs : Pairs
        The positive pairs that count.
    temperature : float
        Cosines are divided by it.

    Returns
    -------
    tensor ()
        ``sum of weights * ln(1 + sum_j exp((v_j - v) / temperature))`` with the sum over the negatives j of the row.
    """
    apply: Callable[..., torch.Tensor] = _Softmax.apply
    return apply(cosines, is_positive, *pairs, temperature)


class _Softmax(torch.autograd.Function):
    """Loss and gradient in few passes over the matrix: it is the largest thing in a step."""

    @staticmethod
    def forward(
        ctx: Any,
        cosines: torch.Tensor,
        is_positive: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
        weights: torch.Tensor,
        temperature: float,
    ) -> torch.Tensor:
        shares = (cosines / temperature).masked_fill_(is_positive, -math.inf)
        highest = shares.amax(dim=1, keepdim=True).clamp_(min=LOWEST)
        sums = shares.sub_(highest).exp_().sum(dim=1)
        margins = (sums.log() + highest[:, 0]).clamp_(min=LOWEST)[rows] - cosines[rows, columns] / temperature
        ctx.save_for_backward(shares, sums, rows, columns, weights * torch.sigmoid(margins) / temperature)
        return (weights * softplus(margins)).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        shares, sums, rows, columns, pulls = ctx.saved_tensors
        pushes = torch.zeros_like(sums).index_add_(0, rows, pulls)
        gradient = shares * (pushes / sums.clamp(min=SMALLEST))[:, None]
        gradient[rows, columns] -= pulls
        return gradients[0] * gradient, None, None, None, None, None
