"""Training of heads over label sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch.nn.functional import linear, log_softmax

from xcore.heads.fitting.base import Targets, TorchHead, array_of, log_shares, on, weights
from xcore.heads.label_sets import FittedLabelSets, SetCode
from xcore.numeric.matrices import Float32, Float64
from xcore.training.shards import Lookup

MOST_LIKELY_MEMBER = 0.5  # a label with at least this chance is in the row's set


class LabelSetModule(TorchHead):
    """The outputs of all heads side by side."""

    def __init__(self, code: SetCode, dimensions: int, shares: Float32, seed: int) -> None:
        super().__init__()
        self.code = code
        self.weights = weights((int(code.starts[-1]), dimensions), seed)
        self.biases = log_shares(_set_shares(code, shares))

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of the digits of each row's set, summed over the heads."""
        scores = linear(x, self.weights, self.biases)
        is_member = targets.values >= MOST_LIKELY_MEMBER
        digits = self.code.digits(targets.rows[is_member], targets.classes[is_member], targets.n_rows)
        starts = self.code.starts
        total = x.new_zeros(())
        for h, (start, end) in enumerate(pairwise(starts.tolist())):
            logs = log_softmax(scores[:, start:end], dim=1)
            total = total - logs.gather(1, on(x, digits[:, h : h + 1])).sum()
        return total

    def fitted(self) -> FittedLabelSets:
        return FittedLabelSets(self.code, array_of(self.weights), array_of(self.biases))


def _set_shares(code: SetCode, shares: Float32) -> Float64:
    """How often each value of each digit would occur if labels were independent, side by side."""
    found, first = [], 0
    for length in code.lengths:
        n_bits = length.bit_length() - 1
        own = np.minimum(shares[first : first + n_bits].astype(np.float64), 1.0)
        is_on = np.arange(length)[:, None] >> np.arange(n_bits) & 1
        found.append(np.where(is_on, own, 1 - own).prod(axis=1))
        first += n_bits
    return np.concatenate(found)
