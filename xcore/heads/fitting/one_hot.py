"""Training of the one-hot head."""

from __future__ import annotations

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, linear, log_softmax

from xcore.heads.fitting.base import Targets, TorchHead, array_of, log_odds, log_shares, on, weights
from xcore.heads.one_hot import FittedOneHot, OneHot
from xcore.numeric.matrices import Float32
from xcore.training.shards import Lookup


class OneHotModule(TorchHead):
    """One output per class."""

    def __init__(self, options: OneHot, n_classes: int, dimensions: int, shares: Float32, seed: int) -> None:
        super().__init__()
        self.is_logistic = options.loss == "logistic"
        self.weights = weights((n_classes, dimensions), seed)
        self.biases = log_odds(shares) if self.is_logistic else log_shares(shares)

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of all outputs; it allocates rows x classes, as this head must."""
        scores = linear(x, self.weights, self.biases)
        rows, classes, values = on(x, targets.rows), on(x, targets.classes), on(x, targets.values)
        if self.is_logistic:
            wanted = torch.zeros_like(scores)
            wanted[rows, classes] = values
            return binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        return -(values * log_softmax(scores, dim=1)[rows, classes]).sum()

    def fitted(self) -> FittedOneHot:
        return FittedOneHot(array_of(self.weights), array_of(self.biases), self.is_logistic)
