"""Multi-Head Product: one short head for each digit of the class number, read side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.heads.base import HeadAbout, OrderedHead, log_logistic, log_softmax, take_layer
from xcore.heads.codec import LabelCodec
from xcore.heads.lengths import equal_lengths, fewest_heads
from xcore.heads.search import best_codes
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int64, TopK, row_blocks
from xcore.numeric.products import product_of_rows

if TYPE_CHECKING:
    from xcore.heads.fitting.product import ProductModule

BLOCK_ROWS = 256
Length = Annotated[int, Field(ge=1, lt=2**31)]
DigitLoss = Literal["logistic", "softmax"]


class CodedHead(OrderedHead):
    """Options of a head whose classes have codes of digits."""

    lengths: tuple[Length, ...] = Field(
        (),
        description="Length of each head; their product must be at least the number of labels. Empty: chosen by the "
        "number of heads.",
    )
    heads: int = Field(2, ge=1, le=64, description="Number of heads. Ignored where lengths are given.")

    def codec(self, n_classes: int, dimensions: int) -> LabelCodec:
        """The code of the classes."""
        return LabelCodec(n_classes, self.lengths or self._chosen_lengths(n_classes, self.heads))

    def _chosen_lengths(self, n_classes: int, n_heads: int) -> tuple[int, ...]:
        return equal_lengths(n_classes, n_heads)


class ParallelHead(CodedHead):
    """Options of heads that are read side by side, so that more of them need less memory."""

    memory_mb: float | None = Field(
        None,
        gt=0,
        description="Take the fewest heads whose weights train within this memory, in MB. Empty: heads decides.",
    )

    def codec(self, n_classes: int, dimensions: int) -> LabelCodec:
        if self.lengths or self.memory_mb is None:
            return super().codec(n_classes, dimensions)
        n_heads = fewest_heads(n_classes, dimensions * self._copies, self.memory_mb, self._chosen_lengths)
        return LabelCodec(n_classes, self._chosen_lengths(n_classes, n_heads))

    @property
    def keeps_numbers(self) -> bool:
        """Given numbers are the code. To leave out labels would change the digits of all that follow.

        A label without training rows costs no weights, and is found by the digits that it shares with others.
        """
        return self.order == "given"

    @property
    def _copies(self) -> int:
        return 1


class MultiHeadProduct(ParallelHead):
    """Multi-Head Product: the code's digits are learnt by one short head each.

    A step costs O(batch d (a_1 + ... + a_H)). It is made for rows with one label: where a row has several, the heads
    cannot tell which digits belong together.
    """

    kind: Literal["mhp"] = "mhp"
    loss: DigitLoss = Field(
        "softmax",
        description="softmax: the values of a digit share one distribution. logistic: each value is an independent "
        "yes or no, as in the authors' code.",
    )

    @property
    def is_distribution(self) -> bool:
        return self.loss == "softmax"

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> ProductModule:
        from xcore.heads.fitting.product import ProductModule

        return ProductModule(self, self.codec(n_classes, dimensions), dimensions, shares, seed)


class ProductAbout(HeadAbout):
    """A trained product of heads."""

    kind: Literal["mhp"]
    lengths: Annotated[list[Length], Field(min_length=1, max_length=64)]
    is_logistic: bool

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedProduct:
        codec = saved_codec(file, n_classes, self.lengths)
        return FittedProduct(codec, *take_layer(file, int(codec.starts[-1]), dimensions), self.is_logistic)


@dataclass(frozen=True)
class FittedProduct:
    """Trained heads, side by side.

    Attributes
    ----------
    codec : LabelCodec
    weights : float32 (a_1 + ... + a_H, d)
    biases : float32 (a_1 + ... + a_H,)
    is_logistic : bool
    """

    codec: LabelCodec
    weights: Float32
    biases: Float32
    is_logistic: bool

    def topk(self, features: Float32, k: int) -> TopK:
        """The k classes with the largest products of their digits' probabilities.

        Cost of a row O((a_1 + ... + a_H) (d + k)).
        """
        return topk_of_codes(features, k, self.codec, self.digit_scores)

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """The sum over the digits. Codes without a class have a share too, which is not given to the others."""
        digits, found = self.codec.digits(classes), np.zeros(len(features), np.float32)
        for part in row_blocks(len(features), BLOCK_ROWS):
            for h, scores in enumerate(self.digit_scores(features[part])):
                found[part] += scores[np.arange(len(scores)), digits[part, h]]
        return found

    def digit_scores(self, features: Float32) -> list[Float32]:
        """Logarithms of the probabilities of each digit's values, float32 (n, a_h) for each head."""
        scores = product_of_rows(features, self.weights) + self.biases
        return split_digits(scores, self.codec.starts, self.is_logistic)

    def arrays(self) -> dict[str, Any]:
        return {"head.weights": self.weights, "head.biases": self.biases}

    def about(self) -> dict[str, Any]:
        return {"kind": "mhp", "lengths": list(self.codec.lengths), "is_logistic": self.is_logistic}


def saved_codec(file: ArrayFile, n_classes: int, lengths: list[int]) -> LabelCodec:
    """The code of a saved head; lengths that do not fit are damage."""
    try:
        return LabelCodec(n_classes, tuple(lengths))
    except ConfigError as error:
        raise ArtifactDamaged(f"{file.path}: {error}; make the artifact again") from error


def split_digits(scores: Float32, starts: Int64, is_logistic: bool) -> list[Float32]:
    """Outputs that lie side by side as logarithms of probabilities of each head."""
    log = log_logistic if is_logistic else log_softmax
    return [log(scores[:, a:b]) for a, b in pairwise(starts.tolist())]


def topk_of_codes(features: Float32, k: int, codec: LabelCodec, digit_scores: Any) -> TopK:
    """The k best classes by the sum of their digits' scores; scores become probabilities."""
    top = TopK(np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32))
    search = partial(best_codes, k=k, last=codec.digits(np.array([codec.n_classes - 1]))[0].tolist())
    for part in row_blocks(len(features), BLOCK_ROWS):
        codes, scores = search(digit_scores(features[part]))
        is_class = np.isfinite(scores)
        top.labels[part] = np.where(is_class, codec.compose(np.maximum(codes, 0)), NO_LABEL)
        top.scores[part] = np.where(is_class, np.exp(scores), -np.inf)
    return top
