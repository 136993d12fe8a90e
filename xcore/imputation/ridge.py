"""Ridge regression of many labels at once on sparse rows, with the scores that a group gets without its own targets."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.errors import ConfigError
from xcore.grouping import Groups
from xcore.kernels import SparseRows, even_blocks, over_blocks, single_threaded_blas
from xcore.matrices import CSR, Float32, Float64, Int32, Int64

_GRAM_BLOCKS = 32
FOLD = 256
_MOST_GAIN = 0.95
_SKETCH = 1024


class RidgeSystem(NamedTuple):
    """The part of a ridge regression that all labels share: ``A = X'X + mu I`` over the rows that count.

    Attributes
    ----------
    X : the rows, columns reordered so that those of most energy come first.
    inverse : float32 (h, h)
        Inverse of A over the first h columns.
    rest : float32 (d - h,)
        Inverse of the diagonal of A over the others, which count as uncorrelated once their `mean` is subtracted
        (that is what rare features share with all others). With d <= h nothing is left out.
    mean : float32 (d - h,)
    half : float32 (h, r)
        ``half half'`` is the inverse: exactly for h up to 1024, else as the mean over r = 1024 random signs, which is
        off by about 3 % of the rows' lengths. Only `left_out` uses it.
    """

    X: SparseRows
    inverse: Float32
    rest: Float32
    mean: Float32
    half: Float32

    @property
    def n_features(self) -> int:
        return len(self.inverse) + len(self.rest)

    def weights(self, sums: Float32, mass: Float64) -> tuple[Float32, Float64]:
        """Weights (labels, d) and intercepts (labels,) from the target-weighted sums of rows and of targets.

        Overwrites `sums`. Cost O(labels h^2).
        """
        h = len(self.inverse)
        sums[:, :h] = sums[:, :h] @ self.inverse
        sums[:, h:] -= mass.astype(np.float32)[:, None] * self.mean
        sums[:, h:] *= self.rest
        return sums, -(sums[:, h:] @ self.mean).astype(np.float64)


def ridge_system(X: CSR, counted: Int64, penalty: float, max_joint: int) -> RidgeSystem:
    """Factor the system once for all labels.

    Cost O(nnz(X) nnz(row) + h^3) with h = min(d, max_joint); memory O(nnz(X) + h^2) float32.

    Parameters
    ----------
    X : CSR float32 (n, d)
    counted : rows that take part in the regression; the others only get scores.
    penalty : mu, in units of a row's squared length.
    max_joint : the most features whose correlations are kept.
    """
    import scipy.linalg

    taking_part = np.zeros(X.shape[0], bool)
    taking_part[counted] = True
    kept = np.repeat(taking_part, np.diff(X.indptr))
    energy = np.bincount(X.indices[kept], X.data[kept].astype(np.float64) ** 2, X.shape[1])
    h = min(X.shape[1], max_joint)
    order = np.argsort(-energy, kind="stable") if h < X.shape[1] else np.arange(X.shape[1])
    position = np.empty(X.shape[1], np.int32)
    position[order] = np.arange(X.shape[1], dtype=np.int32)
    rows = SparseRows(SparseRows.of(X).data, position[X.indices], X.indptr.astype(np.int64))
    gram = np.zeros((h, h), np.float32)
    cuts = np.linspace(0, h, _GRAM_BLOCKS + 1).astype(np.int64)
    over_blocks(lambda b: _add_gram(rows, taking_part, cuts[b], cuts[b + 1], gram), range(_GRAM_BLOCKS))
    gram[np.diag_indices(h)] += np.float32(penalty)
    with single_threaded_blas():
        factor, failed = scipy.linalg.lapack.spotrf(gram.T, lower=1, overwrite_a=1)
        half, _ = scipy.linalg.lapack.strtrs(factor, _signs(h), lower=1, trans=1)
        inverse, failed_too = scipy.linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    if failed or failed_too:
        raise ConfigError(f"X'X + {penalty} I could not be factored: raise the penalty")
    inverse = inverse.T
    _mirror(inverse)
    mean = (np.bincount(X.indices[kept], X.data[kept], X.shape[1]) / max(len(counted), 1))[order[h:]]
    spread = np.maximum(energy[order[h:]] - len(counted) * mean**2, 0.0)
    rest = (1.0 / (spread + penalty)).astype(np.float32)
    return RidgeSystem(rows, inverse, rest, mean.astype(np.float32), np.ascontiguousarray(half))


def _signs(h: int) -> Float32:
    """R (h, r) with ``R R'`` the identity: itself if that is small, else in the mean over random signs."""
    if h <= _SKETCH:
        return np.eye(h, dtype=np.float32)
    signs = np.random.default_rng(0).integers(0, 2, (h, _SKETCH)).astype(np.float32) * 2 - 1
    return signs / np.float32(np.sqrt(_SKETCH))


class LeftOut(NamedTuple):
    """What turns fitted scores of a group into those of a fit without the group: ``M_j = (I - X_j A^-1 X_j')^-1``.

    With targets t and fitted scores s of the members, the scores without their targets are ``t + M_j (s - t)``.
    Groups above 256 members are cut into folds of 256, each left out by itself: memory O(256 n) at most.

    Attributes
    ----------
    first : int64 (m,)
        Where the matrices of each group begin.
    matrices : float32 (sum of squared fold sizes,)
    """

    first: Int64
    matrices: Float32


def left_out(system: RidgeSystem, groups: Groups) -> LeftOut:
    """The matrices of all groups. Cost O(r nnz(X) + n g (r + g)), g the size of a group, at most 256."""
    sizes = groups.sizes
    full, last = sizes // FOLD, sizes % FOLD
    first = np.concatenate([[0], np.cumsum(full * FOLD**2 + last**2)])
    matrices = np.empty(first[-1], np.float32)
    indptr = groups.members.indptr.astype(np.int64)
    members = np.ascontiguousarray(groups.members.indices, np.int32)

    def fill(block: range) -> None:
        _fill_left_out(system, indptr, members, first, (block.start, block.stop), matrices)

    with single_threaded_blas():
        over_blocks(fill, even_blocks(sizes, 64))
    return LeftOut(first[:-1], matrices)


@numba.njit(cache=True, nogil=True)
def _add_gram(X: SparseRows, taking_part: Int64, start: int, stop: int, gram: Float32) -> None:
    """Add the rows ``start <= a < stop`` of X'X, as far as a <= b, over the leading columns."""
    h = len(gram)
    for row in range(len(taking_part)):
        if not taking_part[row]:
            continue
        for first in range(X.indptr[row], X.indptr[row + 1]):
            a = X.indices[first]
            if a < start or a >= stop:
                continue
            for second in range(X.indptr[row], X.indptr[row + 1]):
                b = X.indices[second]
                if a <= b < h:
                    gram[a, b] += X.data[first] * X.data[second]


@numba.njit(cache=True, nogil=True)
def _mirror(matrix: Float32) -> None:
    """Copy the upper triangle to the lower one."""
    for a in range(len(matrix)):
        for b in range(a):
            matrix[a, b] = matrix[b, a]


@numba.njit(cache=True, nogil=True)
def _fill_left_out(
    system: RidgeSystem, indptr: Int64, members: Int32, first: Int64, groups: tuple[int, int], matrices: Float32
) -> None:
    """Write the matrices of the groups ``groups[0] <= j < groups[1]``."""
    scratch = np.zeros(len(system.rest), np.float32)
    for group in range(groups[0], groups[1]):
        place = first[group]
        for fold in range(indptr[group], indptr[group + 1], FOLD):
            rows = members[fold : min(fold + FOLD, indptr[group + 1])]
            hat = _joint_hat(system, rows)
            if len(system.rest):
                _add_rest_of_hat(system, rows, hat, scratch)
            matrix = _without(hat)
            matrices[place : place + matrix.size] = matrix.ravel().astype(np.float32)
            place += matrix.size


@numba.njit(cache=True, nogil=True)
def _joint_hat(system: RidgeSystem, rows: Int32) -> Float64:
    """``X_j A^-1 X_j'`` (g, g) of some rows, over the joint features."""
    X, half = system.X, system.half
    halves = np.zeros((len(rows), half.shape[1]), np.float32)
    for i in range(len(rows)):
        for entry in range(X.indptr[rows[i]], X.indptr[rows[i] + 1]):
            if X.indices[entry] < len(half):
                value, direction = X.data[entry], half[X.indices[entry]]
                for position in range(len(direction)):
                    halves[i, position] += value * direction[position]
    hat: Float64 = np.dot(halves, halves.T).astype(np.float64)
    return hat


@numba.njit(cache=True, nogil=True)
def _add_rest_of_hat(system: RidgeSystem, rows: Int32, hat: Float64, scratch: Float32) -> None:
    """Add what the features beyond the joint ones contribute; `scratch` (d - h,) is zero before and after."""
    X, h, with_mean = system.X, len(system.inverse), np.zeros(len(rows))
    mean_square = np.sum(system.mean.astype(np.float64) ** 2 * system.rest)
    for i in range(len(rows)):
        for entry in range(X.indptr[rows[i]], X.indptr[rows[i] + 1]):
            feature = X.indices[entry] - h
            if feature >= 0:
                scratch[feature] = X.data[entry] * system.rest[feature]
                with_mean[i] += scratch[feature] * system.mean[feature]
        for j in range(len(rows)):
            for entry in range(X.indptr[rows[j]], X.indptr[rows[j] + 1]):
                if X.indices[entry] >= h:
                    hat[i, j] += X.data[entry] * scratch[X.indices[entry] - h]
        for entry in range(X.indptr[rows[i]], X.indptr[rows[i] + 1]):
            if X.indices[entry] >= h:
                scratch[X.indices[entry] - h] = 0.0
    for i in range(len(rows)):
        for j in range(len(rows)):
            hat[i, j] += mean_square - with_mean[i] - with_mean[j]


@numba.njit(cache=True, nogil=True)
def _without(hat: Float64) -> Float64:
    """``(I - H)^-1``. All eigenvalues of H are below 1 in an exact system; where the features beyond the joint ones
    push one above, H is scaled down."""
    direction, gain = np.ones(len(hat)), 0.0
    for _ in range(12):
        direction = hat @ direction
        gain = np.sqrt(np.sum(direction**2))
        if gain < 1e-12:
            break
        direction /= gain
    scaled = hat * min(1.0, _MOST_GAIN / max(gain, 1e-12))
    return np.linalg.inv(np.eye(len(hat)) - scaled).astype(np.float64)
