"""A threshold on the score for each label: a label is kept where its score reaches its own threshold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from xcore.components import Component
from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Float64, Int64, TopK
from xcore.saved import read_table
from xcore.training.dev_choice import hits_of

FILE = "thresholds.parquet"
COLUMNS = {"threshold": pa.float32(), "common": pa.float32(), "dev_positives": pa.int64()}


class ThresholdOptions(Component):
    """How the thresholds of labels are chosen."""

    depth: int = Field(
        20, ge=1, le=10_000, description="Number of labels per dev row whose scores are looked at, the best first."
    )
    prior: float = Field(
        50,
        ge=1,
        description="Number of true dev rows as which the scores of all labels together count for each label. A larger "
        "number moves thresholds towards one for all labels.",
    )


@dataclass(frozen=True)
class LabelThresholds:
    """The thresholds of all labels.

    Attributes
    ----------
    values : float32 (n_labels,)
    common : float
        The best one threshold for all labels. Labels without offers on dev rows have it.
    n_positives : int64 (n_labels,)
        Dev rows that carry each label.
    """

    values: Float32
    common: float
    n_positives: Int64

    def kept(self, top: TopK) -> npt.NDArray[np.bool_]:
        """Which places of a ranking (n, k) hold a label with a score that reaches its threshold."""
        found: npt.NDArray[np.bool_] = (top.labels != NO_LABEL) & (top.scores >= self.values[top.labels])
        return found

    def extended(self, n_labels: int) -> LabelThresholds:
        """The same with more labels, which share the common threshold."""
        more = n_labels - len(self.values)
        values = np.append(self.values, np.full(more, self.common, np.float32))
        return LabelThresholds(values, self.common, np.append(self.n_positives, np.zeros(more, np.int64)))

    def save(self, directory: Path) -> None:
        """Write ``thresholds.parquet``, one row per label."""
        common = np.full(len(self.values), self.common, np.float32)
        pq.write_table(pa.table([self.values, common, self.n_positives], list(COLUMNS)), directory / FILE)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        values, common, n_positives = (column.to_numpy() for column in read_table(directory / FILE, COLUMNS).columns)
        return cls(values, float(common[0]) if len(common) else 0.0, n_positives)


def choose_thresholds(top: TopK, truth: CSR, prior: float) -> LabelThresholds:
    """The threshold of each label with the highest F1 on some rows, where all labels together count as `prior` rows.

    F1 of a label is ``2 hits / (kept + true)``. The best threshold on a handful of rows is little more than the score
    of one of them. So the hits, kept and true labels of all labels at the same threshold are added to the label's own,
    scaled to `prior` true ones: rare labels have nearly the common threshold, frequent ones their own.

    A threshold lies halfway between the scores that it parts. Cost O(m log m) for m offered labels.
    """
    if not truth.nnz:
        raise ConfigError("none of the rows has a label, so no threshold can be chosen: take rows with labels")
    offered = top.labels != NO_LABEL
    label, score = top.labels[offered].astype(np.int64), top.scores[offered].astype(np.float64)
    hit, n_true = hits_of(top.labels, truth)[offered], np.bincount(truth.indices, minlength=truth.shape[1])
    every, own = _Cuts.of(np.zeros(len(label), np.int64), score, hit), _Cuts.of(label, score, hit)
    common = every.threshold[np.argmax(2 * every.hits / (every.kept + truth.nnz))]
    weight = prior / truth.nnz

    def f1(hits: Float64, kept: Float64, n_true: Int64, threshold: Float64) -> Float64:
        n_all = np.searchsorted(-every.lowest, -threshold, side="right") - 1
        all_kept, all_hits = np.append(every.kept, 0)[n_all], np.append(every.hits, 0)[n_all]
        shrunk: Float64 = 2 * (hits + weight * all_hits) / (kept + n_true + weight * (all_kept + truth.nnz))
        return shrunk

    reached = score >= common
    hits, kept = (np.bincount(label, some, len(n_true)).astype(np.float64) for some in (hit * reached, reached))
    values = np.full(len(n_true), common)
    usual = f1(hits, kept, n_true, values)
    of_cut = f1(own.hits, own.kept, n_true[own.group], own.threshold)
    best_last = np.lexsort((-np.arange(len(of_cut)), of_cut, own.group))  # of equals the highest threshold
    best = best_last[np.append(np.diff(own.group[best_last]) != 0, True)]
    better = best[of_cut[best] > usual[own.group[best]]]
    values[own.group[better]] = own.threshold[better]
    return LabelThresholds(values.astype(np.float32), float(np.float32(common)), n_true)


class _Cuts(NamedTuple):
    """The places where the offers of each group can be parted, the highest scores of a group first.

    Attributes
    ----------
    group : int64 (c,)
    kept, hits, lowest : float64 (c,)
        How many offers of the group have a score above the cut, how many of these are true, and their lowest score.
    threshold : float64 (c,)
        Halfway to the next score; below the last offer there is none, and it is the offer's own.
    """

    group: Int64
    kept: Float64
    hits: Float64
    lowest: Float64
    threshold: Float64

    @classmethod
    def of(cls, group: Int64, score: Float64, hit: Float64) -> _Cuts:
        order = np.lexsort((-score, group))
        group, score, hits = group[order], score[order], np.cumsum(hit[order])
        starts = np.searchsorted(group, group)
        is_last = np.append(np.diff(group) != 0, True)[: len(group)]
        below = np.where(is_last, score, np.append(score[1:], 0.0)[: len(score)])
        # A threshold cannot part equal scores: only the last of them is a place to cut.
        is_cut = is_last | (below < score)
        kept, before = np.arange(1.0, len(group) + 1) - starts, np.append(0.0, hits)[starts]
        halfway = (score + below) / 2
        return cls(group[is_cut], kept[is_cut], (hits - before)[is_cut], score[is_cut], halfway[is_cut])
