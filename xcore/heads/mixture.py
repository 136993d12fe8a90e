"""G-MHE: the sum of several products of heads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from xcore.heads.base import HeadAbout, log_softmax, take_layer
from xcore.heads.codec import LabelCodec
from xcore.heads.product import Length, ParallelHead, saved_codec, split_digits
from xcore.heads.search import best_codes
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int64, TopK, row_blocks, topk_of_dense
from xcore.numeric.products import product_of_rows

if TYPE_CHECKING:
    from xcore.heads.fitting.mixture import MixtureModule

BLOCK_ROWS = 64


class MultiHeadMixture(ParallelHead):
    """G-MHE: a sum of `parts` products of heads, each with a weight that depends on the row.

    One product has rank one: its digits are independent. A sum of several can say which digits belong together. All
    parts are probabilities, so that the sum is one, and a step costs O(batch d parts (a_1 + ... + a_H)).
    """

    kind: Literal["g-mhe"] = "g-mhe"
    parts: int = Field(4, ge=1, le=4096, description="Number of products in the sum.")

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> MixtureModule:
        from xcore.heads.fitting.mixture import MixtureModule

        return MixtureModule(self.parts, self.codec(n_classes, dimensions), dimensions, shares, seed)

    @property
    def is_distribution(self) -> bool:
        return True

    @property
    def _copies(self) -> int:
        return self.parts


class MixtureAbout(HeadAbout):
    """A trained sum of products."""

    kind: Literal["g-mhe"]
    lengths: Annotated[list[Length], Field(min_length=1, max_length=64)]
    parts: Annotated[int, Field(ge=1, le=4096)]

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedMixture:
        codec = saved_codec(file, n_classes, self.lengths)
        layer = take_layer(file, self.parts * (1 + int(codec.starts[-1])), dimensions)
        return FittedMixture(codec, self.parts, *layer)


@dataclass(frozen=True)
class FittedMixture:
    """A trained sum of products.

    Attributes
    ----------
    codec : LabelCodec
    parts : int
    weights : float32 (parts (1 + a_1 + ... + a_H), d)
        First the outputs that weigh the parts, then the heads of each part.
    biases : float32 (parts (1 + a_1 + ... + a_H),)
    """

    codec: LabelCodec
    parts: int
    weights: Float32
    biases: Float32

    def topk(self, features: Float32, k: int) -> TopK:
        """The k most probable classes, exactly."""
        top = TopK(np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32))
        for part in row_blocks(len(features), BLOCK_ROWS):
            best = self._best(*self._scores(features[part]), k)
            top.labels[part], top.scores[part] = best.labels, best.scores
        return top

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """Codes without a class have a share too, which is not given to the others."""
        found = np.empty(len(features), np.float32)
        for part in row_blocks(len(features), BLOCK_ROWS):
            found[part] = np.log(self._probabilities(*self._scores(features[part]), classes[part, None])[:, 0])
        return found

    def _scores(self, features: Float32) -> tuple[Float32, list[list[Float32]]]:
        """Logarithms of the shares of the parts, and of the probabilities of each part's digits."""
        scores = product_of_rows(features, self.weights) + self.biases
        return log_softmax(scores[:, : self.parts]), self._digit_scores(scores)

    def _digit_scores(self, scores: Float32) -> list[list[Float32]]:
        """Logarithms of the probabilities of each digit's values, for each part."""
        ends = self.parts + int(self.codec.starts[-1]) * np.arange(self.parts + 1)
        return [split_digits(scores[:, start:end], self.codec.starts, False) for start, end in pairwise(ends)]

    def _best(self, shares: Float32, digits: list[list[Float32]], k: int) -> TopK:
        """The best classes of some rows.

        A class that is not among the first m of any part has at most the sum of the parts' m-th values, so the search
        takes more of each part until that sum is no better than the k-th class found.
        """
        n = len(shares)
        top = TopK(np.empty((n, k), np.int32), np.empty((n, k), np.float32))
        waiting, m = np.arange(n), k
        while len(waiting):
            own = [[values[waiting] for values in part] for part in digits]
            best, bound = self._best_of(shares[waiting], own, k, m)
            is_done = (best.scores[:, -1] >= bound) | (m >= self.codec.n_classes)
            top.labels[waiting[is_done]], top.scores[waiting[is_done]] = best.labels[is_done], best.scores[is_done]
            waiting, m = waiting[~is_done], 4 * m
        return top

    def _best_of(self, shares: Float32, digits: list[list[Float32]], k: int, m: int) -> tuple[TopK, Float32]:
        """The best among the first m classes of each part, and what any other class can have at most."""
        last = self.codec.digits(np.array([self.codec.n_classes - 1]))[0].tolist()
        seen, bound = [], np.zeros(len(shares), np.float32)
        for part, own in enumerate(digits):
            codes, scores = best_codes(own, m, last)
            is_class = np.isfinite(scores)
            seen.append(np.where(is_class, self.codec.compose(np.maximum(codes, 0)), NO_LABEL))
            bound += np.exp(shares[:, part] + scores[:, -1])
        classes = np.sort(np.concatenate(seen, axis=1), axis=1)
        is_repeated = np.zeros(classes.shape, np.bool_)
        is_repeated[:, 1:] = classes[:, 1:] == classes[:, :-1]
        values = self._probabilities(shares, digits, np.maximum(classes, 0))
        values[is_repeated | (classes == NO_LABEL)] = -np.inf
        top = topk_of_dense(values, k)
        is_class = np.isfinite(top.scores)
        found = np.take_along_axis(classes, np.maximum(top.labels, 0).astype(np.int64), axis=1)
        return TopK(np.where(is_class, found, NO_LABEL).astype(np.int32), top.scores), bound

    def _probabilities(self, shares: Float32, digits: list[list[Float32]], classes: Int64) -> Float32:
        """The probabilities of some classes (n, m) of each row."""
        codes = self.codec.digits(classes.reshape(-1)).reshape(*classes.shape, -1)
        total = np.zeros(classes.shape, np.float32)
        for part, own in enumerate(digits):
            logs = shares[:, part, None]
            for h, values in enumerate(own):
                logs = logs + np.take_along_axis(values, codes[:, :, h], axis=1)
            total += np.exp(logs)
        return total

    def arrays(self) -> dict[str, Any]:
        return {"head.weights": self.weights, "head.biases": self.biases}

    def about(self) -> dict[str, Any]:
        return {"kind": "g-mhe", "lengths": list(self.codec.lengths), "parts": self.parts}
