"""Multi-Head Sampling: one output for each class, but a training step looks at some groups of classes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from xcore.heads.base import HeadAbout
from xcore.heads.codec import LabelCodec
from xcore.heads.lengths import cascade_lengths
from xcore.heads.one_hot import log_share_of_products, topk_of_products
from xcore.heads.product import CodedHead
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Int64, TopK

if TYPE_CHECKING:
    from xcore.heads.fitting.sampled import SampledModule

USUAL_BATCH = 256


class MultiHeadSampling(CodedHead):
    """Multi-Head Sampling, to train features where there are very many classes.

    The classes are cut into groups of equal size. The softmax of a step runs over the groups of the batch's labels
    (each quarter of a batch has its own), or over `groups` groups per row. The weights grow with the number of labels,
    the cost of a step does not. The logits of a batch are corrected by the chance that their group is in its softmax.
    The paper does not do so; where groups are equally frequent it changes nothing. A prediction looks at all labels:
    what is of use are the features below the head.
    """

    kind: Literal["mhs"] = "mhs"
    groups: int = Field(
        0,
        ge=0,
        description="Number of groups in the softmax of a row: its own and others at random. 0: the groups of all "
        "labels of the batch, which is faster.",
    )
    margin: float = Field(
        0.0,
        ge=0,
        lt=1.57,
        description="Additive angular margin (ArcFace) in radians. Above 0, scores are scaled cosines.",
    )
    scale: float = Field(64.0, gt=0, description="Scale of the cosines. Used only with a margin.")

    @property
    def has_logits(self) -> bool:
        return True

    @property
    def is_distribution(self) -> bool:
        return True

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> SampledModule:
        from xcore.heads.fitting.sampled import SampledModule

        return SampledModule(self, self.codec(n_classes, dimensions), dimensions, shares, seed)

    def _chosen_lengths(self, n_classes: int, n_heads: int) -> tuple[int, ...]:
        """As many classes in all groups of a batch as there are groups."""
        return cascade_lengths(n_classes, 2, USUAL_BATCH)

    def codec(self, n_classes: int, dimensions: int) -> LabelCodec:
        """Groups and places in them: the first head's digit is the group, the others are the place."""
        lengths = super().codec(n_classes, dimensions).lengths
        return LabelCodec(n_classes, (lengths[0], int(np.prod(lengths[1:], dtype=np.int64))))


class SampledAbout(HeadAbout):
    """A trained head of sampled groups."""

    kind: Literal["mhs"]
    has_cosines: bool
    scale: float

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedSampled:
        weights = file.take("head.weights", np.float32, (n_classes, dimensions)).finite().array
        return FittedSampled(weights, self.has_cosines, self.scale)


@dataclass(frozen=True)
class FittedSampled:
    """A trained head of sampled groups.

    Attributes
    ----------
    weights : float32 (C, d)
        Of length 1 where scores are cosines.
    has_cosines : bool
    scale : float
    """

    weights: Float32
    has_cosines: bool
    scale: float

    def topk(self, features: Float32, k: int) -> TopK:
        """The k classes with the largest logits; cost of a row O(C d)."""
        return topk_of_products(self._scaled(features), self.weights, k)

    def log_probability(self, features: Float32, classes: Int64) -> Float32:
        """Log softmax of all logits, also where training saw the softmax of a few groups."""
        return log_share_of_products(self._scaled(features), self.weights, classes)

    def _scaled(self, features: Float32) -> Float32:
        return np.float32(self.scale) * unit_rows(features) if self.has_cosines else features

    def arrays(self) -> dict[str, Any]:
        return {"head.weights": self.weights}

    def about(self) -> dict[str, Any]:
        return {"kind": "mhs", "has_cosines": self.has_cosines, "scale": self.scale}


def unit_rows(vectors: Float32) -> Float32:
    """Vectors scaled to length 1; vectors of length 0 stay."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    found: Float32 = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return found
