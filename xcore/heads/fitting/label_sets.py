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


class LabelSetModule(TorchHead):
    """The outputs of all heads side by side."""

    def __init__(self, code: SetCode, dimensions: int, shares: Float32, seed: int) -> None:
        super().__init__()
        self.code = code
        self.weights = weights((int(code.starts[-1]), dimensions), seed)
        self.biases = log_shares(_set_shares(code, shares))

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of the digits of each row's set, summed over the heads.

        A label of chance q is in the set with that chance, independently of the others.
        """
        scores = linear(x, self.weights, self.biases)
        is_member = targets.values == 1
        digits = self.code.digits(targets.rows[is_member], targets.classes[is_member], targets.n_rows)
        starts = self.code.starts
        total = x.new_zeros(())
        for h, (start, end) in enumerate(pairwise(starts.tolist())):
            logs = log_softmax(scores[:, start:end], dim=1)
            if is_member.all():
                total = total - logs.gather(1, on(x, digits[:, h : h + 1])).sum()
            else:
                total = total - (logs * on(x, _digit_chances(self.code, targets, h))).sum()
        return total

    def fitted(self) -> FittedLabelSets:
        return FittedLabelSets(self.code, array_of(self.weights), array_of(self.biases))


def _digit_chances(code: SetCode, targets: Targets, head: int) -> Float32:
    """Chance of each value of one digit for each row, float32 (n, length)."""
    first = sum(length.bit_length() - 1 for length in code.lengths[:head])
    n_bits = code.lengths[head].bit_length() - 1
    own = (targets.classes >= first) & (targets.classes < first + n_bits)
    chances = np.zeros((targets.n_rows, n_bits), np.float32)
    chances[targets.rows[own], targets.classes[own] - first] = targets.values[own]
    is_on = np.arange(code.lengths[head])[:, None] >> np.arange(n_bits) & 1
    found: Float32 = np.where(is_on, chances[:, None], 1 - chances[:, None]).prod(axis=2, dtype=np.float32)
    return found


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
