"""How much a regression of labels on features must be shrunk, found out from the labels of groups alone."""

from __future__ import annotations

import numpy as np

from xcore.grouping.groups import Groups
from xcore.numeric.matrices import CSR, Float64, Int64
from xcore.numeric.parallel import single_threaded_blas

_GRID = 10.0 ** np.arange(-1.0, 2.1, 0.5)
_MOST_GROUPS = 512
_MOST_LABELS = 256
_BLOCK = 4096
ROWS_NEED_MORE = 3.0
_LEAST = 3.0


def penalty_of(X: CSR, groups: Groups) -> float:
    """A ridge penalty for regressions of the labels on single rows, in units of a row's squared length.

    The counts of groups are regressed on the sums of their members' features, with an intercept and one weight per
    feature. This is unbiased, and every group can be left out in closed form (PRESS). The penalty with the smallest
    leave-one-group-out error is the ratio of noise to signal in the features: it depends on the data, and little on
    the kind, size or number of the groups. So at most 512 groups and their 256 commonest labels are looked at. The
    regression on rows gets three times as much, because its targets carry the errors of the assignment besides, and
    3 at least: with less, groups of 50 lost 0.6 points of P@1 on EURLEX57K, whose features have little noise. Sets say
    1 where several members carry a label: that error is in the left-out groups already, and nothing is added.

    Cost O(512^2 d + 512^3), d the number of features.
    """
    chosen = _some(np.flatnonzero(groups.sizes > 0), _MOST_GROUPS)
    part = groups.take(chosen)
    sizes = part.sizes.astype(np.float64)
    counts = _common_labels(part)
    targets = (counts - np.outer(sizes, counts.sum(axis=0) / max(sizes.sum(), 1.0))) / np.sqrt(sizes)[:, None]
    if len(chosen) < 3 or not np.any(np.abs(targets) > 1e-6):
        return _LEAST
    with single_threaded_blas():
        errors = _errors(_kernel((part.members.astype(np.float32) @ X).tocsr(), sizes), sizes, targets)
    return max(_LEAST, _lowest(errors) * (ROWS_NEED_MORE if groups.merge == "list" else 1.0))


def _some(places: Int64, most: int) -> Int64:
    """At most so many of them, drawn once and for all."""
    if len(places) <= most:
        return places
    return np.sort(np.random.default_rng(0).choice(places, most, replace=False))


def _common_labels(part: Groups) -> Float64:
    """Counts (groups, labels) of the commonest labels."""
    total = np.bincount(part.labels.indices, part.labels.data, part.n_labels)
    common = np.sort(np.argsort(-total, kind="stable")[:_MOST_LABELS])
    dense: Float64 = part.labels[:, common].toarray().astype(np.float64)
    return dense


def _kernel(sums: CSR, sizes: Float64) -> Float64:
    """Inner products of the groups' sums, centred by the mean row, each divided by the root of its size."""
    mean = np.bincount(sums.indices, sums.data, sums.shape[1]) / sizes.sum()
    products, by_feature = np.zeros((len(sizes), len(sizes))), sums.tocsc()
    for first in range(0, sums.shape[1], _BLOCK):
        part = by_feature[:, first : first + _BLOCK].toarray()
        products += part @ part.T
    with_mean = np.outer(sums @ mean, sizes)
    centred: Float64 = products - with_mean - with_mean.T + np.outer(sizes, sizes) * float(mean @ mean)
    return centred / np.sqrt(np.outer(sizes, sizes))


def _errors(kernel: Float64, sizes: Float64, targets: Float64) -> Float64:
    """Mean squared leave-one-group-out error for each penalty of the grid; the intercept has the leverage of sizes."""
    values, vectors = np.linalg.eigh(kernel)
    rotated, of_intercept = vectors.T @ targets, sizes / sizes.sum()
    errors = np.empty(len(_GRID))
    for place, penalty in enumerate(_GRID):
        kept = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + penalty)
        leverage = np.minimum(vectors**2 @ kept + of_intercept, 0.999)
        residuals = (targets - vectors @ (kept[:, None] * rotated)) / (1.0 - leverage)[:, None]
        errors[place] = np.mean(residuals**2)
    return errors


def _lowest(errors: Float64) -> float:
    """The penalty at the lowest point of the parabola through the least error and its neighbours."""
    best = int(np.argmin(errors))
    if best in (0, len(errors) - 1):
        return float(_GRID[best])
    before, least, after = errors[best - 1 : best + 2]
    shift = 0.5 * (before - after) / max(before - 2 * least + after, 1e-12)
    return float(_GRID[best] * (_GRID[1] / _GRID[0]) ** np.clip(shift, -0.5, 0.5))
