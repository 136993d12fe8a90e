"""Metrics of rows that have exactly one label: accuracy and predictive log-likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xcore.metrics.bootstrap import BLOCK_ROWS, Interval, RatioSums
from xcore.metrics.frequency import THIRDS, thirds_of_mass
from xcore.numeric.matrices import Float64, Int64, TopK, row_blocks


def log_probabilities(scores: npt.NDArray[np.floating[Any]], labels: npt.NDArray[np.integer[Any]]) -> Float64:
    """Log softmax of a dense block of scores (n, L), at each row's label (n,); cost O(n L)."""
    block = np.asarray(scores, np.float64)
    block = block - block.max(axis=1, keepdims=True)
    result: Float64 = block[np.arange(len(labels)), labels] - np.log(np.exp(block).sum(axis=1))
    return result


def accuracy(top: TopK, labels: npt.NDArray[np.integer[Any]]) -> float:
    """Share of rows where the best label is the row's one true label (n,)."""
    return float((top.labels[:, 0] == labels).mean())


def log_likelihood(log_probability: Float64) -> float:
    """Predictive log-likelihood: the mean of log p(true label of the row | row), from `log_probabilities`."""
    return float(log_probability.mean())


def evaluate_single_label(
    top: TopK,
    labels: npt.NDArray[np.integer[Any]],
    log_probability: Float64 | None = None,
    *,
    train_counts: Int64,
    n_bootstrap: int = 1000,
    rng: np.random.Generator,
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Accuracy and, where log p(true label) is given, predictive log-likelihood, with their 95% intervals.

    ``head/accuracy`` and so on are means over the rows with a true label in that third.
    """
    third = thirds_of_mass(train_counts)[labels]
    columns = {"rows": np.ones(len(labels)), "accuracy": (top.labels[:, 0] == labels).astype(np.float64)}
    if log_probability is not None:
        columns["log_likelihood"] = log_probability
    ratios = {name: (name, "rows") for name in columns if name != "rows"}
    for i, name in enumerate(THIRDS):
        inside = (third == i).astype(np.float64)
        for whole in [name for name in ratios if "/" not in name]:
            columns[f"{name}/{whole}"] = np.where(inside > 0, columns[whole], 0.0)
            ratios[f"{name}/{whole}"] = (f"{name}/{whole}", f"{name}/rows")
        columns[f"{name}/rows"] = inside
    blocks = list(row_blocks(len(labels), BLOCK_ROWS))
    sums = RatioSums(blocks, n_bootstrap, rng)
    for i, rows in enumerate(blocks):
        sums.add(i, {name: column[rows] for name, column in columns.items()}, ratios)
    return sums.finish()
