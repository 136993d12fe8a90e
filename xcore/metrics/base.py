"""What a metric is: a ratio of two sums, over rows or over labels, and how people see it.

A metric is a file of its own beside this one, with one line in `xcore.metrics.family`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from xcore.metrics.frequency import THIRDS
from xcore.numeric.matrices import Float64, Int64

# What the key of a metric starts with: nothing for all labels, else the part of the labels.
PREFIXES = ("", *(f"{third}/" for third in THIRDS))

Bool: TypeAlias = npt.NDArray[np.bool_]
Unit = Literal["share", "number"]
Parts = Literal["sum", "within", "none"]


@dataclass(frozen=True)
class Hits:
    """The first k places of n rows, and which of them hit one part of the labels (or all labels).

    Attributes
    ----------
    hit : bool (n, k)
        Places that hold a true label of the part.
    gain : float64 (n, k)
        Inverse propensity of each hit, 0 elsewhere.
    n_true : int64 (n,)
        True labels of each row that are in the part.
    n_true_in_all : int64 (n,)
        All true labels of each row.
    best : float64 (n, k)
        The largest inverse propensities among all true labels of each row, largest first, padded with 0.
    log_probability : float64 (n,) or None
        Log probability of each row's one true label, where the caller knows it; nan for a label that the model has not.
    offered : bool (n, k)
        Places that hold a label.
    share : float64 (n, k) or None
        Scores of the places, where they estimate how likely each label is true.
    kept : bool (n, k) or None
        Places that hold a label that reaches its threshold, where labels have thresholds.
    """

    hit: Bool
    gain: Float64
    n_true: Int64
    n_true_in_all: Int64
    best: Float64
    log_probability: Float64 | None = None
    offered: Bool = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    share: Float64 | None = None
    kept: Bool | None = None

    @property
    def k(self) -> int:
        """The rank."""
        return int(self.hit.shape[1])

    @property
    def discount(self) -> Float64:
        """The discount of each place (k,): 1 / log2(place + 1), places counted from 1."""
        discount: Float64 = 1.0 / np.log2(np.arange(2, self.k + 2))
        return discount

    @cached_property
    def ideal(self) -> Float64:
        """The largest sum of discounts that each row can reach (n,); infinite for a row without true labels."""
        reached = np.concatenate([[np.inf], np.cumsum(self.discount)])
        ideal: Float64 = reached[np.minimum(self.n_true_in_all, self.k)]
        return ideal


class LabelCounts(NamedTuple):
    """In how many rows each label of a part is hit among the first k places, and in how many it is true (L,).

    Then in how many rows it is kept by its threshold, and in how many of these it is true (at the largest k).
    """

    hits: Int64
    true: Int64
    kept: Int64
    kept_hits: Int64


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What all metrics state about themselves.

    Attributes
    ----------
    name : str
        First part of the metric's keys: ``precision`` is found under ``precision_at_5`` and ``tail/precision_at_5``.
    title, description : str
        What pages call it, and one line on what it says.
    module : str
        The module that defines it. It counts as code of the steps that compute the metric.
    unit : share or number
        A share of 1 is shown in percent, anything else as it is.
    more_is_better : bool
        Whether a larger value is better.
    ranked : bool
        Whether it has one value for each rank k. A metric without ranks sees the largest k.
    parts : sum, within or none
        How it splits into head, torso and tail. ``sum``: the parts keep the divisor of the whole and add up to it.
        ``within``: a rate among the rows or labels of each part. ``none``: it does not split.
    headline : bool
        Whether pages show it first. The parts of a headline metric that are rates are shown and tracked too.
    one_label : bool
        Whether it is defined only where every row has exactly one true label.
    needs_probabilities : bool
        Whether it needs the log probability of the true label. It is left out for models that do not learn one
        distribution over all labels, and where two models are compared.
    needs_shares : bool
        Whether it needs scores that estimate how likely each label is true (`ScoreScale` share). It is left out for
        other models, and where two models are compared, because only one of them may have such scores.
    needs_kept : bool
        Whether it needs thresholds of labels. It is left out without, and where two models are compared.
    """

    name: str
    title: str
    description: str
    module: str
    unit: Unit = "share"
    more_is_better: bool = True
    ranked: bool = True
    parts: Parts = "sum"
    headline: bool = False
    one_label: bool = False
    needs_probabilities: bool = False
    needs_shares: bool = False
    needs_kept: bool = False

    def ranks(self, ks: Sequence[int]) -> dict[str, int]:
        """The metric's keys for all labels, each with the number of places that it looks at."""
        return {f"{self.name}_at_{k}": k for k in ks} if self.ranked else {self.name: max(ks)}

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What its keys may start with."""
        return PREFIXES[:1] if self.parts == "none" else PREFIXES

    def divisor_of(self, prefix: str) -> str:
        """The prefix of the part whose divisor is used: parts that add up keep that of the whole."""
        return prefix if self.parts == "within" else ""

    @property
    def shows_parts(self) -> bool:
        """Whether pages show its parts beside the whole. Charts for the parts of all metrics would hide the rest."""
        return self.headline and self.parts == "within"


@dataclass(frozen=True, kw_only=True)
class RowMetric(Metric):
    """A ratio of sums over rows, so that resampling the rows gives an interval.

    Attributes
    ----------
    gained : function of Hits to float64 (n,)
        What each row adds to the numerator.
    possible : function of Hits to float64 (n,), optional
        What each row adds to the denominator. Default: 1; within a part, only for rows with a true label in it.
    """

    gained: Callable[[Hits], npt.NDArray[Any]]
    possible: Callable[[Hits], Float64] | None = None


@dataclass(frozen=True, kw_only=True)
class LabelMetric(Metric):
    """A ratio of sums over labels.

    It has no interval: a resample holds about 63% of the rows, so the bootstrap of a number of distinct labels is
    biased downwards.

    Attributes
    ----------
    gained, possible : function of LabelCounts to an array (L,)
        What each label adds to the numerator and to the denominator.
    """

    gained: Callable[[LabelCounts], npt.NDArray[Any]]
    possible: Callable[[LabelCounts], npt.NDArray[Any]]


AnyOf = TypeVar("AnyOf", bound=Metric)


class MetricKey(NamedTuple, Generic[AnyOf]):
    """What a key such as ``tail/recall_at_5`` stands for; k is None for a metric without ranks."""

    prefix: str
    metric: AnyOf
    k: int | None
