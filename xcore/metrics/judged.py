"""From a ranking and the truth to hits, and from hits to the per-row sums of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcore.metrics.base import PREFIXES, Bool, Hits, RowMetric
from xcore.metrics.bootstrap import Ratios
from xcore.metrics.frequency import THIRDS
from xcore.numeric.matrices import CSR, NO_LABEL, Float64, Int64


@dataclass(frozen=True)
class Judged:
    """A block of rows: which places are hits, and what their labels are worth."""

    labels: npt.NDArray[np.int32]  # (n, k)
    hit: Bool  # (n, k)
    weight: Float64  # (n, k): inverse propensity of a hit, else 0
    third: npt.NDArray[np.int8]  # (n, k)
    n_true: Int64  # (n,)
    n_true_in_third: Int64  # (n, 3)
    best: Float64  # (n, k): the largest inverse propensities of the true labels, best first, padded with 0
    truth: npt.NDArray[np.int32]  # true labels, flat
    log_probability: Float64 | None  # (n,): of the one true label
    share: Float64 | None  # (n, k): scores that estimate how likely each label is true
    kept: Bool | None  # (n, k): which labels reach their thresholds

    @classmethod
    def of(
        cls,
        labels: npt.NDArray[np.int32],
        truth: CSR,
        inverse: Float64,
        third: npt.NDArray[np.int8],
        log_probability: Float64 | None = None,
        share: Float64 | None = None,
        kept: Bool | None = None,
    ) -> Judged:
        """Look up each place of the ranking (n, k) among the row's true labels."""
        n, k = labels.shape
        n_true = np.diff(truth.indptr).astype(np.int64)
        row = np.repeat(np.arange(n), n_true)
        true_keys = row * truth.shape[1] + truth.indices
        keys = np.arange(n)[:, None] * truth.shape[1] + labels
        hit = (labels != NO_LABEL) & np.isin(keys, true_keys)
        order = np.lexsort((-inverse[truth.indices], row))
        place = np.arange(len(row)) - np.repeat(np.cumsum(n_true) - n_true, n_true)
        best, fits = np.zeros((n, k)), place < k
        best[row[fits], place[fits]] = inverse[truth.indices[order]][fits]
        in_third = np.bincount(row * len(THIRDS) + third[truth.indices], minlength=n * len(THIRDS)).reshape(n, -1)
        weight = np.where(hit, inverse[labels], 0.0)
        known = (log_probability, share, kept)
        return cls(labels, hit, weight, third[labels], n_true, in_third, best, truth.indices, *known)

    def hits(self, prefix: str, k: int) -> Hits:
        """The first k places, of which those count that hit the part of the labels that a key's prefix names."""
        hit, n_true = self.hit[:, :k], self.n_true
        if prefix:
            part = PREFIXES.index(prefix) - 1
            hit, n_true = hit & (self.third[:, :k] == part), self.n_true_in_third[:, part]
        gain = np.where(hit, self.weight[:, :k], 0.0)
        offered = self.labels[:, :k] != NO_LABEL
        share = None if self.share is None else self.share[:, :k]
        kept = None if self.kept is None else self.kept[:, :k]
        return Hits(hit, gain, n_true, self.n_true, self.best[:, :k], self.log_probability, offered, share, kept)


def row_sums(block: Judged, metrics: Iterable[RowMetric], ks: Sequence[int]) -> tuple[dict[str, Float64], Ratios]:
    """Per-row columns, and for each key of a metric the two columns whose sums it divides."""
    columns: dict[str, Float64] = {}
    ratios: dict[str, tuple[str, str]] = {}
    found = {(prefix, k): block.hits(prefix, k) for prefix in PREFIXES for k in ks}
    for metric in metrics:
        for key, k in metric.ranks(ks).items():
            for prefix in metric.prefixes:
                columns[prefix + key] = np.asarray(metric.gained(found[prefix, k]), np.float64)
                base = metric.divisor_of(prefix)
                # All that count rows share a column, whatever their rank: columns are what the bootstrap costs.
                divisor = base + (f"possible/{key}" if metric.possible else "rows")
                if divisor not in columns:
                    columns[divisor] = _divisor(metric, found[base, k], base)
                ratios[prefix + key] = (prefix + key, divisor)
    return columns, ratios


def _divisor(metric: RowMetric, hits: Hits, prefix: str) -> Float64:
    if metric.possible:
        return metric.possible(hits)
    return (hits.n_true > 0).astype(np.float64) if prefix else np.ones(len(hits.n_true))
