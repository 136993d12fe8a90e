"""Multi-Head Cascade: the first head chooses groups of classes, each further head looks into the chosen groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numba
import numpy as np
from pydantic import Field

from xcore.heads.base import HeadAbout, log_logistic, log_softmax, take_layer
from xcore.heads.codec import LabelCodec
from xcore.heads.lengths import cascade_lengths
from xcore.heads.product import CodedHead, DigitLoss, Length, saved_codec
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int64, TopK, row_blocks, topk_of_dense
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows

if TYPE_CHECKING:
    from xcore.heads.fitting.cascade import CascadeModule

BLOCK_SCORES = 2**20


class MultiHeadCascade(CodedHead):
    """Multi-Head Cascade, for rows with one label or many.

    The score of a label is the product of its digits' probabilities, each given the digits before it. A row costs
    O(d a_1 + candidates bottleneck (a_2 + ... + a_H)). The table of the last head has one vector of `bottleneck`
    numbers for each label: it grows with the number of labels, and each step changes only the rows that it looks at.
    """

    kind: Literal["mhc"] = "mhc"
    candidates: int = Field(
        10, ge=1, description="Number of groups that a row looks into after each head. In training its own come first."
    )
    bottleneck: int = Field(256, ge=1, description="Length of the vectors of the heads after the first.")
    loss: DigitLoss = Field(
        "logistic",
        description="logistic: each label is an independent yes or no. softmax: for rows with one label; the values "
        "of a digit share one distribution, and training looks into the true group only.",
    )

    @property
    def is_distribution(self) -> bool:
        return self.loss == "softmax"

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> CascadeModule:
        from xcore.heads.fitting.cascade import CascadeModule

        return CascadeModule(self, self.codec(n_classes, dimensions), dimensions, shares, seed)

    def _chosen_lengths(self, n_classes: int, n_heads: int) -> tuple[int, ...]:
        return cascade_lengths(n_classes, n_heads, self.candidates)


class CascadeAbout(HeadAbout):
    """A trained cascade."""

    kind: Literal["mhc"]
    lengths: Annotated[list[Length], Field(min_length=1, max_length=64)]
    candidates: Annotated[int, Field(ge=1, lt=2**31)]
    bottleneck: Annotated[int, Field(ge=1, lt=2**24)]
    is_logistic: bool

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedCascade:
        codec, length = saved_codec(file, n_classes, self.lengths), self.bottleneck

        def array(name: str, *shape: int) -> Float32:
            return file.take(f"head.{name}", np.float32, shape).finite().array

        further = [
            Further(
                array(f"{h}.weights", length, dimensions),
                array(f"{h}.biases", length),
                array(f"{h}.table", codec.n_prefixes(h), length),
            )
            for h in range(2, len(self.lengths) + 1)
        ]
        first = take_layer(file, codec.n_prefixes(1), dimensions)
        return FittedCascade(codec, self.candidates, *first, tuple(further), self.is_logistic)


@dataclass(frozen=True)
class Further:
    """A head after the first: the score of a prefix is ``table[prefix] . (W x + b)``.

    Attributes
    ----------
    weights : float32 (bottleneck, d)
    biases : float32 (bottleneck,)
    table : float32 (prefixes, bottleneck)
    """

    weights: Float32
    biases: Float32
    table: Float32


@dataclass(frozen=True)
class FittedCascade:
    """A trained cascade.

    Attributes
    ----------
    codec : LabelCodec
    candidates : int
        Prefixes that are kept after each head.
    weights : float32 (groups, d)
    biases : float32 (groups,)
    further : tuple of Further
    is_logistic : bool
    """

    codec: LabelCodec
    candidates: int
    weights: Float32
    biases: Float32
    further: tuple[Further, ...]
    is_logistic: bool

    def topk(self, features: Float32, k: int) -> TopK:
        """The k best classes among the candidates; cost of a row O(d a_1 + candidates bottleneck (a_2 + ... + a_H)).

        More prefixes are kept where `candidates` of them could not hold k classes.
        """
        top = TopK(np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32))
        widest = max([len(self.weights), *(self._kept(h, k) * a for h, a in enumerate(self.codec.lengths[1:], 1))])
        for part in row_blocks(len(features), max(1, BLOCK_SCORES // widest)):
            best = self._topk(features[part], k)
            top.labels[part] = best.labels
            top.scores[part] = np.where(best.labels == NO_LABEL, -np.inf, np.exp(best.scores))
        return top

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """The sum over the digits, each given those before it. Candidates play no part: the class is known."""
        digits, found = self.codec.digits(classes), np.empty(len(features), np.float32)
        for part in row_blocks(len(features), max(1, BLOCK_SCORES // max(self.codec.lengths))):
            found[part] = self._log_probability(features[part], classes[part], digits[part])
        return found

    def _log_probability(self, features: Float32, classes: Int64, digits: Int64) -> Float32:
        rows = np.arange(len(features))
        found = self._logarithms(product_of_rows(features, self.weights) + self.biases)[rows, digits[:, 0]]
        for number, head in enumerate(self.further, 1):
            own = product_of_rows(features, head.weights) + head.biases
            before = self.codec.prefixes(classes, number)[:, None]
            children = score_children(own, head.table, before, self.codec.lengths[number])
            found = found + self._children_logarithms(children)[rows, 0, digits[:, number]]
        return found

    def _kept(self, n_digits: int, k: int) -> int:
        """Prefixes of some digits to keep for k classes: the last prefix may hold fewer classes than the others."""
        return max(self.candidates, 1 + -(-k // int(self.codec.radices[n_digits - 1])))

    def _topk(self, features: Float32, k: int) -> TopK:
        scores = self._logarithms(product_of_rows(features, self.weights) + self.biases)
        n_kept = [self._kept(h, k) for h in range(1, len(self.codec.lengths))]
        best = topk_of_dense(scores, min(n_kept[0], scores.shape[1]) if n_kept else k)
        for number, head in enumerate(self.further, 1):
            length = self.codec.lengths[number]
            own = product_of_rows(features, head.weights) + head.biases
            children = score_children(own, head.table, best.labels.astype(np.int64), length)
            n, width = best.labels.shape
            scores = self._children_logarithms(children) + best.scores[:, :, None]
            k_here = k if number == len(self.further) else min(n_kept[number], width * length)
            top = topk_of_dense(scores.reshape(n, width * length), k_here)
            best = TopK(*_as_prefixes(top, best.labels, length))
        return best

    def _logarithms(self, scores: Float32) -> Float32:
        return log_logistic(scores) if self.is_logistic else log_softmax(scores)

    def _children_logarithms(self, scores: Float32) -> Float32:
        """As `_logarithms`, for (n, prefixes, a) where places beyond the last class hold ``-inf``."""
        if self.is_logistic:
            return np.where(np.isfinite(scores), log_logistic(np.maximum(scores, np.float32(-1e30))), scores)
        n, width, length = scores.shape
        is_some = np.isfinite(scores).any(axis=2, keepdims=True)  # a prefix that stands for none has no child
        found = log_softmax(np.where(is_some, scores, 0).reshape(n * width, length)).reshape(n, width, length)
        return np.where(is_some, found, -np.inf).astype(np.float32)

    def arrays(self) -> dict[str, Any]:
        found = {"head.weights": self.weights, "head.biases": self.biases}
        for number, head in enumerate(self.further, 2):
            found |= {f"head.{number}.{name}": getattr(head, name) for name in ("weights", "biases", "table")}
        return found

    def about(self) -> dict[str, Any]:
        return {
            "kind": "mhc",
            "lengths": list(self.codec.lengths),
            "candidates": self.candidates,
            "bottleneck": self.further[0].table.shape[1] if self.further else 1,
            "is_logistic": self.is_logistic,
        }


def _as_prefixes(top: TopK, prefixes: Any, length: int) -> tuple[Any, Float32]:
    """Places among (prefix, digit) pairs as prefixes with one more digit; places beyond the last class are none."""
    place = np.maximum(top.labels, 0).astype(np.int64)
    found = np.take_along_axis(prefixes, place // length, axis=1).astype(np.int64) * length + place % length
    is_none = ~np.isfinite(top.scores)
    return np.where(is_none, NO_LABEL, found).astype(np.int32), np.where(is_none, -np.inf, top.scores)


def score_children(own: Float32, table: Float32, prefixes: Int64, length: int) -> Float32:
    """``own[row] . table[child]`` for the children of each row's prefixes, float32 (n, prefixes, length).

    Children beyond the table's end, and those of no prefix, have ``-inf``.
    """
    out = np.empty((*prefixes.shape, length), np.float32)

    def fill(part: slice) -> None:
        _score_children(own[part], table, prefixes[part], out[part])

    over_blocks(fill, row_blocks(len(own), 16))
    return out


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _score_children(own: Float32, table: Float32, prefixes: Int64, out: Float32) -> None:
    n, width, length = out.shape
    for row in range(n):
        for place in range(width):
            first = prefixes[row, place] * length
            for digit in range(length):
                child = first + digit
                if child < 0 or child >= len(table):
                    out[row, place, digit] = -np.inf
                    continue
                total = np.float32(0)
                for f in range(own.shape[1]):
                    total += own[row, f] * table[child, f]
                out[row, place, digit] = total
