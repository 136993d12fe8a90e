"""Training of the sum of products."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch.nn.functional import linear, log_softmax

from xcore.heads.codec import LabelCodec
from xcore.heads.fitting.base import Targets, TorchHead, array_of, log_shares, on, weights
from xcore.heads.fitting.product import digit_shares
from xcore.heads.mixture import FittedMixture
from xcore.numeric.matrices import Float32
from xcore.training.shards import Lookup


class MixtureModule(TorchHead):
    """The weights of the parts, then the outputs of each part's heads."""

    def __init__(self, parts: int, codec: LabelCodec, dimensions: int, shares: Float32, seed: int) -> None:
        super().__init__()
        self.parts, self.codec = parts, codec
        self.weights = weights((parts * (1 + int(codec.starts[-1])), dimensions), seed)
        found = np.concatenate([np.full(parts, 1 / parts), np.tile(digit_shares(codec, shares), parts)])
        self.biases = log_shares(found)

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The negative logarithm of the sum over the parts of the product over the heads."""
        scores = linear(x, self.weights, self.biases)
        rows = on(x, targets.rows)
        digits, starts = self.codec.digits(targets.classes), self.codec.starts.tolist()
        heads = scores[:, self.parts :].reshape(len(x), self.parts, -1)
        logs = log_softmax(scores[:, : self.parts], dim=1)[rows]
        for h, (start, end) in enumerate(pairwise(starts)):
            own = log_softmax(heads[:, :, start:end], dim=2)
            logs = logs + own[rows, :, on(x, digits[:, h])]
        return -(on(x, targets.values) * torch.logsumexp(logs, dim=1)).sum()

    def fitted(self) -> FittedMixture:
        return FittedMixture(self.codec, self.parts, array_of(self.weights), array_of(self.biases))
