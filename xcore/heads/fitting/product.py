"""Training of the product of heads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, linear, log_softmax

from xcore.heads.codec import LabelCodec
from xcore.heads.fitting.base import Targets, TorchHead, array_of, log_odds, log_shares, on, weights
from xcore.heads.product import FittedProduct, MultiHeadProduct
from xcore.numeric.matrices import Float32, Float64
from xcore.training.shards import Lookup


class ProductModule(TorchHead):
    """The outputs of all heads side by side."""

    def __init__(
        self, options: MultiHeadProduct, codec: LabelCodec, dimensions: int, shares: Float32, seed: int
    ) -> None:
        super().__init__()
        self.codec, self.is_logistic = codec, options.loss == "logistic"
        self.weights = weights((int(codec.starts[-1]), dimensions), seed)
        found = digit_shares(codec, shares)
        self.biases = log_odds(found) if self.is_logistic else log_shares(found)

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of the digits: averaged over independent outputs, or summed over the heads."""
        scores = linear(x, self.weights, self.biases)
        starts = self.codec.starts
        places = self.codec.digits(targets.classes) + starts[:-1]
        if self.is_logistic:
            absent = np.ones(scores.shape, np.float32)  # chance that no class of the row has the digit
            np.multiply.at(absent, (targets.rows[:, None], places), 1 - targets.values[:, None])
            return binary_cross_entropy_with_logits(scores, on(x, 1 - absent), reduction="sum") / scores.shape[1]
        rows, values = on(x, targets.rows), on(x, targets.values)
        total = x.new_zeros(())
        for h, (start, end) in enumerate(pairwise(starts.tolist())):
            logs = log_softmax(scores[:, start:end], dim=1)
            total = total - (values * logs[rows, on(x, places[:, h] - start)]).sum()
        return total

    def fitted(self) -> FittedProduct:
        return FittedProduct(self.codec, array_of(self.weights), array_of(self.biases), self.is_logistic)


def digit_shares(codec: LabelCodec, shares: Float32) -> Float64:
    """How often each value of each digit occurs, side by side, float64 (a_1 + ... + a_H,)."""
    found = np.zeros(int(codec.starts[-1]))
    places = codec.digits(np.arange(codec.n_classes)) + codec.starts[:-1]
    np.add.at(found, places, shares[:, None])
    return np.minimum(found, 1.0)
