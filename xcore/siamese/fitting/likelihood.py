"""Losses of cosines: the likelihood p(+1 | v) = c exp(d (v - 1)) of a pair, and a softmax over many labels."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import softplus


def positive_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(+1 | v) = ln(1 / c) + d (1 - v)."""
    return steepness * (1 - cosines) - math.log(ceiling)


def negative_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(-1 | v) = -ln(1 - c exp(d (v - 1))); finite for c < 1, also where rounding brings v a little above 1."""
    return -torch.log1p(-ceiling * torch.exp(steepness * (cosines.clamp(max=1.0) - 1)))


def softmax_loss(
    cosines: torch.Tensor, is_positive: torch.Tensor, weights: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Cross-entropy of each positive against all negatives of its row; other positives of the row do not compete.

    Parameters
    ----------
    cosines, weights : tensor (n, m)
        The weight of each pair; only those of positives count.
    is_positive : bool tensor (n, m)
    temperature : float
        Cosines are divided by it.

    Returns
    -------
    tensor ()
        ``sum of weights * ln(1 + sum_j exp((v_j - v) / temperature))`` with the sum over the negatives j of the row.
    """
    logits = cosines / temperature
    negatives = torch.logsumexp(logits.masked_fill(is_positive, -math.inf), dim=1, keepdim=True)
    return (torch.where(is_positive, weights, 0.0) * softplus(negatives.clamp(min=-1e4) - logits)).sum()
