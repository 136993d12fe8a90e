"""One output for each class: the plain output layer, to compare other heads with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from xcore.heads.base import Head, HeadAbout, log_softmax, logistic, take_layer
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Int64, TopK, row_blocks, topk_of_dense
from xcore.numeric.products import product_of_rows

if TYPE_CHECKING:
    from xcore.heads.fitting.one_hot import OneHotModule

BLOCK_SCORES = 2**22


class OneHot(Head):
    """One output for each class. A step costs O(batch C d) and the weights grow with C d."""

    kind: Literal["one-hot"] = "one-hot"
    loss: Literal["logistic", "softmax"] = Field(
        "logistic",
        description="logistic: each label is an independent yes or no. softmax: the labels of a row share one "
        "distribution.",
    )

    @property
    def has_logits(self) -> bool:
        return self.loss == "softmax"

    @property
    def is_distribution(self) -> bool:
        return self.loss == "softmax"

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> OneHotModule:
        from xcore.heads.fitting.one_hot import OneHotModule

        return OneHotModule(self, n_classes, dimensions, shares, seed)


class OneHotAbout(HeadAbout):
    """A trained one-hot head."""

    kind: Literal["one-hot"]
    is_logistic: bool

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedOneHot:
        return FittedOneHot(*take_layer(file, n_classes, dimensions), self.is_logistic)


@dataclass(frozen=True)
class FittedOneHot:
    """A trained one-hot head.

    Attributes
    ----------
    weights : float32 (C, d)
    biases : float32 (C,)
    is_logistic : bool
        Scores are probabilities of each class alone; else they are logits, logarithms of shares up to a constant.
    """

    weights: Float32
    biases: Float32
    is_logistic: bool

    def topk(self, features: Float32, k: int) -> TopK:
        """The k best classes; cost of a row O(C d)."""
        top = topk_of_products(features, self.weights, k, self.biases)
        return TopK(top.labels, logistic(top.scores)) if self.is_logistic else top

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """Log softmax of all outputs."""
        return log_share_of_products(features, self.weights, classes, self.biases)

    def arrays(self) -> dict[str, Any]:
        return {"head.weights": self.weights, "head.biases": self.biases}

    def about(self) -> dict[str, Any]:
        return {"kind": "one-hot", "is_logistic": self.is_logistic}


def topk_of_products(features: Float32, weights: Float32, k: int, biases: Float32 | None = None) -> TopK:
    """The k largest of ``features W' + b`` for each row, a block of rows at a time."""
    n = len(features)
    top = TopK(np.empty((n, k), np.int32), np.empty((n, k), np.float32))
    for part, scores in _blocks_of_products(features, weights, biases):
        best = topk_of_dense(scores, k)
        top.labels[part], top.scores[part] = best.labels, best.scores
    return top


def log_share_of_products(
    features: Float32, weights: Float32, classes: Int64, biases: Float32 | None = None
) -> Float32:
    """Log softmax of ``features W' + b`` at one class of each row (n,), a block of rows at a time."""
    found = np.empty(len(features), np.float32)
    for part, scores in _blocks_of_products(features, weights, biases):
        found[part] = log_softmax(scores)[np.arange(len(scores)), classes[part]]
    return found


def _blocks_of_products(features: Float32, weights: Float32, biases: Float32 | None) -> Iterator[tuple[slice, Float32]]:
    for part in row_blocks(len(features), max(1, BLOCK_SCORES // max(1, len(weights)))):
        scores = product_of_rows(features[part], weights)
        if biases is not None:
            scores += biases
        yield part, scores
