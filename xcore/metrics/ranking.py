"""Metrics of the k best labels of each row; conventions are those of `xcore.metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.errors import ConfigError
from xcore.metrics.bootstrap import BLOCK_ROWS, Interval, Ratios, RatioSums
from xcore.metrics.frequency import THIRDS, propensities, thirds_of_mass
from xcore.numeric.matrices import CSR, NO_LABEL, Float64, Int64, TopK, row_blocks

N_DECILES = 10

Bool: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one ranking.

    Attributes
    ----------
    metrics : dict
        ``precision_at_1``, ``ndcg_at_3``, ``psp_at_5``, ``psndcg_at_5``, ``recall_at_5``, ``coverage_at_5``, ..., and
        each as ``head/...``, ``torso/...``, ``tail/...``.
    intervals : dict
        95% percentile bootstrap interval over rows. Coverage has none: a resample holds about 63% of the rows, so
        the bootstrap of a number of distinct labels is biased downwards.
    per_label : table
        ``label, train_count, test_count, predicted, hits, precision, recall`` at the largest k; precision is null for
        a label that was never offered, recall for one that is never true.
    per_decile : table
        ``decile`` (1: most frequent tenth of the labels that have training rows), ``n_labels, min_train_count,
        max_train_count`` and, for each k, ``precision_at_k`` (hits on the decile's labels / (n k): they add up to
        the whole, where only labels with training rows are hit) and ``recall_at_k`` (hits / true entries).
    n_rows, n_unlabelled : int
        Number of rows, and how many of them have no true label.
    """

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    per_label: pa.Table
    per_decile: pa.Table
    n_rows: int
    n_unlabelled: int


def evaluate(
    top: TopK,
    truth: CSR,
    *,
    ks: Sequence[int] = (1, 3, 5),
    train_counts: Int64,
    n_train: int,
    a: float = 0.55,
    b: float = 1.5,
    n_bootstrap: int = 1000,
    rng: np.random.Generator,
) -> Evaluation:
    """Measure a ranking against the truth, for all labels and by head, torso and tail.

    Parameters
    ----------
    top : TopK (n, at least max(ks))
        The ranking; no label twice in a row.
    truth : CSR (n, L)
        True labels.
    train_counts : int64 (L,)
        Training rows of each label, for propensities and thirds; ``n_train`` training rows in all.
    a, b : float
        Parameters of `propensities`.
    n_bootstrap : int
        Resamples of rows behind the intervals; 0 gives none. Rows are drawn from `rng`; nothing is ranked again.

    Notes
    -----
    Cost O(nnz log nnz + n_bootstrap n m) for m about 23 columns per k; memory O(block (m + n_bootstrap) + L len(ks)).
    The result does not depend on the number of threads: nothing here goes through a threaded BLAS.
    """
    _check(top, truth, ks, train_counts)
    inverse = 1.0 / propensities(train_counts, n_train, a, b)
    third = thirds_of_mass(train_counts)
    tally = _LabelTally(ks, truth.shape[1])
    blocks = list(row_blocks(len(top), BLOCK_ROWS))
    sums = RatioSums(blocks, n_bootstrap, rng)
    for i, rows in enumerate(blocks):
        block = _Judged.of(top.labels[rows, : max(ks)], truth[rows], inverse, third)
        tally.add(block)
        sums.add(i, *_row_ratios(block, ks))
    metrics, intervals = sums.finish()
    return Evaluation(
        metrics=metrics | tally.coverage(third),
        intervals=intervals,
        per_label=tally.per_label(train_counts),
        per_decile=tally.per_decile(train_counts, len(top)),
        n_rows=len(top),
        n_unlabelled=int((np.diff(truth.indptr) == 0).sum()),
    )


def row_values(
    top: TopK,
    truth: CSR,
    metric: str,
    *,
    train_counts: Int64,
    n_train: int,
    a: float = 0.55,
    b: float = 1.5,
) -> tuple[Float64, Float64]:
    """Numerator and denominator of one metric in each row: its value is the ratio of their sums.

    Feed two rankings of the same rows to `paired_bootstrap`. `metric` is a key of ``Evaluation.metrics`` other than
    coverage, which is no sum over rows.
    """
    ks = [int(metric.rpartition("_at_")[2])] if metric.rpartition("_at_")[2].isdecimal() else [1]
    _check(top, truth, ks, train_counts)
    inverse, third = 1.0 / propensities(train_counts, n_train, a, b), thirds_of_mass(train_counts)
    parts = []
    for rows in row_blocks(len(top), BLOCK_ROWS):
        columns, ratios = _row_ratios(_Judged.of(top.labels[rows, : ks[0]], truth[rows], inverse, third), ks)
        if metric not in ratios:
            raise ConfigError(f"metric {metric!r} is not known row by row: use one of {', '.join(sorted(ratios))}")
        parts.append([columns[name] for name in ratios[metric]])
    numerators, denominators = (np.concatenate(part) for part in zip(*parts, strict=True))
    return numerators, denominators


def _check(top: TopK, truth: CSR, ks: Sequence[int], train_counts: Int64) -> None:
    if len(top) != truth.shape[0] or not len(top):
        raise ConfigError(
            f"the ranking has {len(top)} rows and the truth {truth.shape[0]}: they must match, and not be 0"
        )
    if len(train_counts) != truth.shape[1]:
        raise ConfigError(f"train_counts has {len(train_counts)} labels but the truth has {truth.shape[1]}")
    if not ks or min(ks) < 1 or max(ks) > top.k:
        raise ConfigError(f"ks must be 1 to {top.k} (what the ranking holds), got {list(ks)}: predict with a larger k")
    if int(top.labels.max()) >= truth.shape[1]:
        raise ConfigError(f"the ranking names label {top.labels.max()} but there are only {truth.shape[1]} labels")


@dataclass(frozen=True)
class _Judged:
    """A block of rows: which places are hits, and what their labels are worth."""

    labels: npt.NDArray[np.int32]  # (n, k)
    hit: Bool  # (n, k)
    weight: Float64  # (n, k): inverse propensity of a hit, else 0
    third: npt.NDArray[np.int8]  # (n, k)
    n_true: Int64  # (n,)
    n_true_in_third: Int64  # (n, 3)
    best: Float64  # (n, k): the largest inverse propensities of the true labels, best first, padded with 0
    truth: npt.NDArray[np.int32]  # true labels, flat

    @classmethod
    def of(cls, labels: npt.NDArray[np.int32], truth: CSR, inverse: Float64, third: npt.NDArray[np.int8]) -> _Judged:
        n, k = labels.shape
        n_true = np.diff(truth.indptr).astype(np.int64)
        row = np.repeat(np.arange(n), n_true)
        true_keys = row * truth.shape[1] + truth.indices
        keys = np.arange(n)[:, None] * truth.shape[1] + labels
        hit = (labels != NO_LABEL) & np.isin(keys, true_keys)
        order = np.lexsort((-inverse[truth.indices], row))
        place = np.arange(len(row)) - np.repeat(np.cumsum(n_true) - n_true, n_true)
        best, kept = np.zeros((n, k)), place < k
        best[row[kept], place[kept]] = inverse[truth.indices[order]][kept]
        in_third = np.bincount(row * len(THIRDS) + third[truth.indices], minlength=n * len(THIRDS)).reshape(n, -1)
        weight = np.where(hit, inverse[labels], 0.0)
        return cls(labels, hit, weight, third[labels], n_true, in_third, best, truth.indices)


def _row_ratios(block: _Judged, ks: Sequence[int]) -> tuple[dict[str, Float64], Ratios]:
    """Per-row columns, and for each metric the two columns whose sums it divides."""
    columns: dict[str, Float64] = {"rows": np.ones(len(block.n_true))}
    ratios: dict[str, tuple[str, str]] = {}
    for k in ks:
        discount = 1.0 / np.log2(np.arange(2, k + 2))
        ideal = np.concatenate([[np.inf], np.cumsum(discount)])[np.minimum(block.n_true, k)]
        best = block.best[:, :k]
        columns[f"best/psp_at_{k}"] = best.sum(axis=1) / k
        columns[f"best/psndcg_at_{k}"] = (best * discount).sum(axis=1) / ideal
        for prefix, counted, n_true in _groups(block, k):
            weight = np.where(counted, block.weight[:, :k], 0.0)
            found = counted.sum(axis=1)
            values = {
                "precision": found / k,
                "ndcg": (counted * discount).sum(axis=1) / ideal,
                "psp": weight.sum(axis=1) / k,
                "psndcg": (weight * discount).sum(axis=1) / ideal,
                "recall": found / np.maximum(n_true, 1),
            }
            if prefix:
                columns[f"{prefix}labelled"] = (n_true > 0).astype(np.float64)
            for name, value in values.items():
                key = f"{prefix}{name}_at_{k}"
                columns[key] = value
                ratios[key] = (key, _divisor(prefix, name, k))
    return columns, ratios


def _groups(block: _Judged, k: int) -> Iterator[tuple[str, Bool, Int64]]:
    """Prefix of the metric keys, hits that count, and true labels of each row: for all labels, then for each third."""
    hit = block.hit[:, :k]
    yield "", hit, block.n_true
    for i, name in enumerate(THIRDS):
        yield f"{name}/", hit & (block.third[:, :k] == i), block.n_true_in_third[:, i]


def _divisor(prefix: str, name: str, k: int) -> str:
    if name in ("psp", "psndcg"):
        return f"best/{name}_at_{k}"
    return f"{prefix}labelled" if name == "recall" and prefix else "rows"


class _LabelTally:
    """Counts by label: how often true, offered (at the largest k) and hit (at each k)."""

    def __init__(self, ks: Sequence[int], n_labels: int) -> None:
        self._ks = sorted(ks)
        self._true = np.zeros(n_labels, np.int64)
        self._offered = np.zeros(n_labels, np.int64)
        self._hits = {k: np.zeros(n_labels, np.int64) for k in self._ks}

    def add(self, block: _Judged) -> None:
        n_labels = len(self._true)
        self._true += np.bincount(block.truth, minlength=n_labels)
        self._offered += np.bincount(block.labels[block.labels != NO_LABEL], minlength=n_labels)
        for k in self._ks:
            self._hits[k] += np.bincount(block.labels[:, :k][block.hit[:, :k]], minlength=n_labels)

    def coverage(self, third: npt.NDArray[np.int8]) -> dict[str, float]:
        """Share of the labels that are true somewhere that are also hit somewhere."""
        groups = {"": np.ones(len(third), bool)} | {f"{name}/": third == i for i, name in enumerate(THIRDS)}
        result = {}
        for prefix, inside in groups.items():
            n_true = int((self._true[inside] > 0).sum())
            for k, hits in self._hits.items():
                result[f"{prefix}coverage_at_{k}"] = (hits[inside] > 0).sum() / n_true if n_true else np.nan
        return {key: float(value) for key, value in result.items()}

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
