"""Metrics of the k best labels of each row; conventions are those of `xcore.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from xcore.errors import ConfigError
from xcore.metrics.base import AnyOf, Bool, LabelMetric, RowMetric
from xcore.metrics.bootstrap import BLOCK_ROWS, Interval, RatioSums
from xcore.metrics.family import METRICS, find_metric, paired_metrics
from xcore.metrics.frequency import propensities, thirds_of_mass
from xcore.metrics.judged import Judged, row_sums
from xcore.metrics.label_tally import LabelTally
from xcore.numeric.matrices import CSR, Float64, Int64, TopK, row_blocks


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one ranking.

    Attributes
    ----------
    metrics : dict
        All metrics of `xcore.metrics.family` that the rows allow, by key: ``precision_at_1``, ``accuracy``, ..., and
        each as ``head/...``, ``torso/...``, ``tail/...`` if it splits.
    intervals : dict
        95% percentile bootstrap interval over rows, of all metrics that are sums over rows.
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
    log_probability: Float64 | None = None,
    shares: bool = False,
    kept: Bool | None = None,
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
    log_probability : float64 (n,), optional
        Log probability of each row's one true label (`log_probabilities`), nan for a label that the model has not.
        Metrics that need it are left out without.
    shares : bool
        Whether the scores of the ranking estimate how likely each label is true. Metrics that need it are left out
        without.

    kept : bool (n, k), optional
        Which places of the ranking hold a label that reaches its threshold. Metrics that need it are left out without.

    Notes
    -----
    Cost O(nnz log nnz + n_bootstrap n m) for m about 22 columns per k. Memory
    O(block (m + n_bootstrap) + L len(ks)).
    The result does not depend on the number of threads: nothing here goes through a threaded BLAS.
    """
    _check(top, truth, ks, train_counts)
    if log_probability is not None and log_probability.shape != (len(top),):
        raise ConfigError(f"log_probability must have one value per row ({len(top)},), got {log_probability.shape}")
    metrics = measurable(METRICS.values(), truth, log_probability, shares, kept)
    by_row = [metric for metric in metrics if isinstance(metric, RowMetric)]
    by_label = [metric for metric in metrics if isinstance(metric, LabelMetric)]
    inverse = 1.0 / propensities(train_counts, n_train, a, b)
    third = thirds_of_mass(train_counts)
    tally = LabelTally(ks, truth.shape[1])
    blocks = list(row_blocks(len(top), BLOCK_ROWS))
    sums = RatioSums(blocks, n_bootstrap, rng)
    for i, rows in enumerate(blocks):
        known = None if log_probability is None else log_probability[rows]
        share = top.scores[rows, : max(ks)].astype(np.float64) if shares else None
        passed = None if kept is None else kept[rows, : max(ks)]
        block = Judged.of(top.labels[rows, : max(ks)], truth[rows], inverse, third, known, share, passed)
        tally.add(block)
        sums.add(i, *row_sums(block, by_row, ks))
    values, intervals = sums.finish()
    return Evaluation(
        metrics=values | tally.values(by_label, third),
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

    Feed two rankings of the same rows to `paired_bootstrap`. `metric` is a key of ``Evaluation.intervals``: a metric
    that is no sum over rows, or that needs probabilities, has no such values.
    """
    _, found, rank = find_metric(metric, paired_metrics())
    k = rank or top.k
    _check(top, truth, [k], train_counts)
    if found not in measurable([found], truth):
        raise ConfigError(
            f"metric {metric!r} needs exactly one true label in every row, and some rows have another number: "
            "use precision_at_1 instead"
        )
    inverse, third = 1.0 / propensities(train_counts, n_train, a, b), thirds_of_mass(train_counts)
    parts = []
    for rows in row_blocks(len(top), BLOCK_ROWS):
        columns, ratios = row_sums(Judged.of(top.labels[rows, :k], truth[rows], inverse, third), [found], [k])
        parts.append([columns[name] for name in ratios[metric]])
    numerators, denominators = (np.concatenate(part) for part in zip(*parts, strict=True))
    return numerators, denominators


def measurable(
    metrics: Iterable[AnyOf],
    truth: CSR,
    log_probability: Float64 | None = None,
    shares: bool = False,
    kept: Bool | None = None,
) -> list[AnyOf]:
    """The metrics that are defined here.

    Some need one true label per row, its probability, scores as shares, or thresholds of labels.
    """
    one_label = bool((np.diff(truth.indptr) == 1).all())
    return [
        metric
        for metric in metrics
        if (one_label or not metric.one_label)
        and (log_probability is not None or not metric.needs_probabilities)
        and (shares or not metric.needs_shares)
        and (kept is not None or not metric.needs_kept)
    ]


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
