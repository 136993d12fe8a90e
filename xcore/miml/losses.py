"""Losses of bags, in torch."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, softmax

from xcore.miml.counts import count_loss
from xcore.miml.options import BagLoss
from xcore.miml.pooling import BagRows
from xcore.numeric.matrices import Float32, Float64

LEAST_SHARE = 1e-7  # of a label among the rows of a bag, so that its logarithm is finite


def bag_loss(
    kind: BagLoss,
    values: torch.Tensor,
    bias: torch.Tensor,
    bags: BagRows,
    mask: torch.Tensor | None,
    counts: Float32,
    counted: bool,
) -> torch.Tensor:
    """The loss of some bags, summed.

    Parameters
    ----------
    kind : loss
    values : (n, m)
        Of the rows, one bag after the other (V2).
    bias : (m,)
    bags : BagRows
    mask : (n, m) or None
        Multiplies the values. None: all ones.
    counts : float32 (b, m)
        How many rows carry each label; 1 or 0 where that is not known.
    counted : bool
    """
    values = values if mask is None else values * mask
    if kind == "count":
        return _count_loss(values + bias, bags, np.minimum(counts, bags.sizes[:, None]).astype(np.float64), counted)
    bag = torch.from_numpy(bags.bag).to(values.device)
    if kind == "proportion":
        shares = _mean(softmax(values + bias, dim=1), bag, bags)
        return torch.sum(_shares(counts, values) * -torch.log(shares + LEAST_SHARE))
    logits = _largest(values, bag, len(counts)) + bias
    if kind == "softmax":
        return torch.sum(_shares(counts, values) * -log_softmax(logits, dim=1))
    soft = np.minimum(counts / bags.sizes[:, None], 1) if counted else counts
    targets = torch.from_numpy(soft.astype(np.float32)).to(values.device)
    return binary_cross_entropy_with_logits(logits, targets, reduction="sum")


def _count_loss(logits: torch.Tensor, bags: BagRows, counts: Float64, counted: bool) -> torch.Tensor:
    """The exact value, with its exact gradient."""
    value, gradient = count_loss(logits.detach().cpu().numpy(), bags.offsets, counts, counted)
    slope = torch.sum(logits * torch.from_numpy(gradient).to(logits.device))
    return slope - slope.detach() + float(value)


def _shares(counts: Float32, like: torch.Tensor) -> torch.Tensor:
    """Labels of each bag as a distribution; 0 for a bag without labels."""
    total = np.maximum(counts.sum(axis=1, keepdims=True), np.float32(1e-12))
    return torch.from_numpy(counts / total).to(like.device)


def _largest(values: torch.Tensor, bag: torch.Tensor, n_bags: int) -> torch.Tensor:
    """Maxima over each bag. Tied rows share the gradient."""
    start = values.new_full((n_bags, values.shape[1]), -torch.inf)
    return start.scatter_reduce(0, bag[:, None].expand_as(values), values, "amax")


def _mean(values: torch.Tensor, bag: torch.Tensor, bags: BagRows) -> torch.Tensor:
    total = values.new_zeros((len(bags.sizes), values.shape[1])).index_add(0, bag, values)
    return total / torch.from_numpy(bags.sizes.astype(np.float32)).to(values.device)[:, None]
