"""The likelihood of a pair, p(+1 | v) = c exp(d (v - 1)) for the cosine v, and its two losses."""

from __future__ import annotations

import math

import torch


def positive_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(+1 | v) = ln(1 / c) + d (1 - v)."""
    return steepness * (1 - cosines) - math.log(ceiling)


def negative_loss(cosines: torch.Tensor, ceiling: float, steepness: float) -> torch.Tensor:
    """-ln p(-1 | v) = -ln(1 - c exp(d (v - 1))); finite for c < 1, also where rounding brings v a little above 1."""
    return -torch.log1p(-ceiling * torch.exp(steepness * (cosines.clamp(max=1.0) - 1)))
