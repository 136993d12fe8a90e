"""Multi-Head Product over label sets: a class for each set of labels, which nobody ever lists.

With L labels there are 2^L sets. Each head has a few labels of its own, and its digit says which of them are in the
set. So 2^80 classes need 16 heads of 32 values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from xcore.heads.base import HeadAbout, OrderedHead, take_layer
from xcore.heads.product import split_digits
from xcore.heads.search import best_codes
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Int64, TopK, row_blocks, topk_of_dense
from xcore.numeric.products import product_of_rows

if TYPE_CHECKING:
    from xcore.heads.fitting.label_sets import LabelSetModule

BLOCK_ROWS = 1024


class LabelSets(OrderedHead):
    """Multi-Head Product over label sets: each head tells which of its few labels a row has.

    Unlike one output per label, a head learns which of its labels occur together. A step costs
    O(batch d 2^b L / b) for b labels per head.
    """

    kind: Literal["mhp-sets"] = "mhp-sets"
    labels_per_head: int = Field(
        4, ge=1, le=12, description="Number of labels of each head; a head has 2 to this power outputs."
    )

    def module(self, n_classes: int, dimensions: int, shares: Float32, seed: int) -> LabelSetModule:
        from xcore.heads.fitting.label_sets import LabelSetModule

        return LabelSetModule(SetCode(n_classes, self.labels_per_head), dimensions, shares, seed)


@dataclass(frozen=True)
class SetCode:
    """Sets of labels as digits: bit j of digit h says whether label ``h labels_per_head + j`` is in the set.

    Attributes
    ----------
    n_labels, labels_per_head : int
    """

    n_labels: int
    labels_per_head: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        whole, rest = divmod(self.n_labels, self.labels_per_head)
        return (2**self.labels_per_head,) * whole + ((2**rest,) if rest else ())

    @property
    def starts(self) -> Int64:
        """Where each head begins where all of them lie side by side, int64 (H + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def digits(self, rows: Int64, labels: Int64, n_rows: int) -> Int64:
        """Digits of the sets of some rows, int64 (n_rows, H); label ``labels[i]`` is in the set of ``rows[i]``."""
        found = np.zeros((n_rows, len(self.lengths)), np.int64)
        np.bitwise_or.at(found, (rows, labels // self.labels_per_head), 1 << (labels % self.labels_per_head))
        return found

    def members(self, digits: Int64) -> Any:
        """Which labels are in the sets of some digits (..., H), bool (..., n_labels)."""
        bits = digits[..., :, None] >> np.arange(self.labels_per_head) & 1
        return bits.reshape(*digits.shape[:-1], -1)[..., : self.n_labels].astype(np.bool_)


class LabelSetsAbout(HeadAbout):
    """Trained heads over label sets."""

    kind: Literal["mhp-sets"]
    labels_per_head: Annotated[int, Field(ge=1, le=12)]

    def take(self, file: ArrayFile, n_classes: int, dimensions: int) -> FittedLabelSets:
        code = SetCode(n_classes, self.labels_per_head)
        return FittedLabelSets(code, *take_layer(file, int(code.starts[-1]), dimensions))


@dataclass(frozen=True)
class FittedLabelSets:
    """Trained heads over label sets.

    Attributes
    ----------
    code : SetCode
    weights : float32 (outputs, d)
    biases : float32 (outputs,)
    """

    code: SetCode
    weights: Float32
    biases: Float32

    def topk(self, features: Float32, k: int) -> TopK:
        """The k labels that are most probably in the set: the sum of the probabilities of the sets that hold them."""
        top = TopK(np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32))
        for part in row_blocks(len(features), BLOCK_ROWS):
            best = topk_of_dense(self.probabilities(features[part]), k)
            top.labels[part], top.scores[part] = best.labels, best.scores
        return top

    def probabilities(self, features: Float32) -> Float32:
        """The probability of each label, float32 (n, n_labels)."""
        found = []
        for own in self._digit_scores(features):
            values = np.exp(own)
            n_bits = own.shape[1].bit_length() - 1
            has = [values[:, np.arange(own.shape[1]) >> bit & 1 == 1].sum(axis=1) for bit in range(n_bits)]
            found += has
        stacked: Float32 = np.minimum(np.stack(found, axis=1), np.float32(1))
        return stacked

    def best_sets(self, features: Float32, n: int = 1) -> tuple[Any, Float32]:
        """The n most probable label sets of each row.

        Returns
        -------
        sets : bool (rows, n, n_labels)
        probabilities : float32 (rows, n)
        """
        codes, scores = best_codes(self._digit_scores(features), n)
        return self.code.members(codes), np.exp(scores)

    def _digit_scores(self, features: Float32) -> list[Float32]:
        return split_digits(product_of_rows(features, self.weights) + self.biases, self.code.starts, False)

    def arrays(self) -> dict[str, Any]:
        return {"head.weights": self.weights, "head.biases": self.biases}

    def about(self) -> dict[str, Any]:
        return {"kind": "mhp-sets", "labels_per_head": self.code.labels_per_head}
