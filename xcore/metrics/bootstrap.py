"""Bootstrap over rows: from per-row values to intervals and paired comparisons, never ranking again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from xcore.errors import ConfigError
from xcore.numeric.matrices import Float64, row_blocks

INTERVAL = (2.5, 97.5)
BLOCK_ROWS = 4096

Interval: TypeAlias = tuple[float, float]
Ratios: TypeAlias = Mapping[str, tuple[str, str]]  # metric: names of the two columns whose sums it divides


class Comparison(NamedTuple):
    """A paired comparison: mean difference a - b, its 95% interval, and the share of resamples in which a is better."""

    difference: float
    interval: Interval
    share_better: float


class RatioSums:
    """Sums of per-row columns over all rows and over bootstrap resamples, one block of rows at a time.

    A resample draws n rows with replacement: first how many fall into each block (multinomial), then which.
    """

    def __init__(self, blocks: Sequence[slice], n_bootstrap: int, rng: np.random.Generator) -> None:
        sizes = np.array([rows.stop - rows.start for rows in blocks])
        self._rng, self._sizes = rng, sizes
        self._drawn = rng.multinomial(sizes.sum(), sizes / sizes.sum(), size=n_bootstrap)
        self._sums: Float64 | float = 0.0
        self._resampled: Float64 | float = 0.0
        self._names: list[str] = []
        self._ratios: Ratios = {}

    def add(self, i: int, columns: dict[str, Float64], ratios: Ratios) -> None:
        """Take the columns of block i."""
        self._names, self._ratios = list(columns), ratios
        table = np.column_stack(list(columns.values()))
        self._sums = self._sums + table.sum(axis=0)
        counts = self._drawn[:, i]
        rows = self._rng.integers(self._sizes[i], size=int(counts.sum()), dtype=np.int32)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # A sparse product adds in a fixed order on one thread; a dense one (BLAS) would depend on the threads.
        draws = sp.csr_array((np.ones(len(rows)), rows, indptr), shape=(len(counts), self._sizes[i]))
        self._resampled = self._resampled + draws @ table

    def resampled(self, metric: str) -> Float64:
        """The metric in each resample (n_bootstrap,)."""
        above, below = (np.asarray(self._resampled)[:, self._names.index(name)] for name in self._ratios[metric])
        rate: Float64 = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
        return rate

    def finish(self) -> tuple[dict[str, float], dict[str, Interval]]:
        """Metrics and intervals; resamples in which a rate has nothing to count are left out."""
        sums = dict(zip(self._names, np.asarray(self._sums).tolist(), strict=True))
        metrics = {
            key: sums[above] / sums[below] if sums[below] else np.nan for key, (above, below) in self._ratios.items()
        }
        intervals = {}
        for key in self._ratios if len(self._drawn) else ():
            values = self.resampled(key)
            values = values[~np.isnan(values)]
            low, high = np.percentile(values, INTERVAL) if len(values) else (np.nan, np.nan)
            intervals[key] = (float(low), float(high))
        return metrics, intervals


def paired_bootstrap(
    values_a: Float64,
    values_b: Float64,
    *,
    denominators: Float64 | None = None,
    n_bootstrap: int = 1000,
    rng: np.random.Generator,
) -> Comparison:
    """Whether a (the challenger) beats b (the champion) on the same rows.

    Parameters
    ----------
    values_a, values_b : float64 (n,)
        Per-row values (numerators of `row_values`).
    denominators : float64 (n,), optional
        For metrics that are a ratio of sums; depends on the truth alone, so a and b share it. Default: ones.

    Notes
    -----
    Both rankings see the same resampled rows, so what makes a row hard for both cancels. Cost O(n_bootstrap n).
    """
    if values_a.shape != values_b.shape or values_a.ndim != 1:
        raise ConfigError(
            f"paired values must be two vectors over the same rows, got {values_a.shape}, {values_b.shape}"
        )
    if n_bootstrap < 1:
        raise ConfigError(f"a paired bootstrap needs at least one resample, got n_bootstrap={n_bootstrap}")
    blocks = list(row_blocks(len(values_a), BLOCK_ROWS))
    sums = RatioSums(blocks, n_bootstrap, rng)
    under = np.ones(len(values_a)) if denominators is None else denominators
    for i, rows in enumerate(blocks):
        sums.add(i, {"a-b": values_a[rows] - values_b[rows], "rows": under[rows]}, {"difference": ("a-b", "rows")})
    metrics, intervals = sums.finish()
    better = float((sums.resampled("difference") > 0).mean())
    return Comparison(metrics["difference"], intervals["difference"], better)
