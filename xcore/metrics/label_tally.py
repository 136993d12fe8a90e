"""Counts by label: the metrics and tables that are sums over labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.metrics.base import PREFIXES, LabelCounts, LabelMetric
from xcore.metrics.judged import Judged
from xcore.numeric.matrices import NO_LABEL, Int64

N_DECILES = 10


class LabelTally:
    """Counts by label: how often true, offered and kept (at the largest k) and hit (at each k)."""

    def __init__(self, ks: Sequence[int], n_labels: int) -> None:
        self._ks = sorted(ks)
        self._true = np.zeros(n_labels, np.int64)
        self._offered = np.zeros(n_labels, np.int64)
        self._kept, self._kept_hits = np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64)
        self._hits = {k: np.zeros(n_labels, np.int64) for k in self._ks}

    def add(self, block: Judged) -> None:
        n_labels = len(self._true)
        self._true += np.bincount(block.truth, minlength=n_labels)
        self._offered += np.bincount(block.labels[block.labels != NO_LABEL], minlength=n_labels)
        if block.kept is not None:
            self._kept += np.bincount(block.labels[block.kept], minlength=n_labels)
            self._kept_hits += np.bincount(block.labels[block.kept & block.hit], minlength=n_labels)
        for k in self._ks:
            self._hits[k] += np.bincount(block.labels[:, :k][block.hit[:, :k]], minlength=n_labels)

    def values(self, metrics: Iterable[LabelMetric], third: npt.NDArray[np.int8]) -> dict[str, float]:
        """The metrics that are sums over labels, for all labels and for each part; nan with nothing to count."""
        return {
            prefix + key: self._value(metric, prefix, k, third)
            for metric in metrics
            for key, k in metric.ranks(self._ks).items()
            for prefix in metric.prefixes
        }

    def _value(self, metric: LabelMetric, prefix: str, k: int, third: npt.NDArray[np.int8]) -> float:
        gained = metric.gained(self._counts(prefix, k, third)).sum()
        possible = metric.possible(self._counts(metric.divisor_of(prefix), k, third)).sum()
        return float(gained / possible) if possible else np.nan

    def _counts(self, prefix: str, k: int, third: npt.NDArray[np.int8]) -> LabelCounts:
        inside = third == PREFIXES.index(prefix) - 1 if prefix else np.ones(len(third), bool)
        counts = (self._hits[k], self._true, self._kept, self._kept_hits)
        return LabelCounts(*(each[inside] for each in counts))

    def per_label(self, train_counts: Int64) -> pa.Table:
        hits = self._hits[self._ks[-1]]
        return pa.table(
            {
                "label": pa.array(np.arange(len(hits), dtype=np.int32)),
                "train_count": train_counts.astype(np.int64),
                "test_count": self._true,
                "predicted": self._offered,
                "hits": hits,
                "precision": _share(hits, self._offered),
                "recall": _share(hits, self._true),
            }
        )

    def per_decile(self, train_counts: Int64, n_rows: int) -> pa.Table:
        order = np.argsort(-train_counts, kind="stable")[: int((train_counts > 0).sum())]
        parts = [part for part in np.array_split(order, N_DECILES) if len(part)]
        columns: dict[str, Any] = {
            "decile": pa.array(range(1, len(parts) + 1), pa.int32()),
            "n_labels": [len(part) for part in parts],
            "min_train_count": [int(train_counts[part].min()) for part in parts],
            "max_train_count": [int(train_counts[part].max()) for part in parts],
        }
        n_true = np.array([self._true[part].sum() for part in parts], np.int64)
        for k, by_label in self._hits.items():
            hits = np.array([by_label[part].sum() for part in parts], np.int64)
            columns[f"precision_at_{k}"] = hits / (n_rows * k)
            columns[f"recall_at_{k}"] = _share(hits, n_true)
        return pa.table(columns)


def _share(part: Int64, whole: Int64) -> pa.Array:
    """part / whole, null where whole is 0."""
    return pa.array(part / np.maximum(whole, 1), mask=whole == 0)
