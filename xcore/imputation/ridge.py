"""Ridge regression of many labels at once on sparse rows, with the scores that a group gets without its own targets."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.grouping.groups import Groups
from xcore.imputation.base import SMALLER_GROUPS
from xcore.imputation.column_products import PANEL, JointRows, in_panels, project
from xcore.memory import need_array
from xcore.numeric import cholesky
from xcore.numeric.matrices import CSR, Float32, Float64, Int32, Int64, csr
from xcore.numeric.parallel import SparseRows, even_blocks, over_blocks, single_threaded_blas

_GRAM_BLOCKS = 32
_ROW_BLOCKS = 64
FOLD = 256
_MOST_GAIN = 0.95
_SKETCH = 1024
_MOST_SKETCHED = 2**29  # floats: 2 GB


class Rest(NamedTuple):
    """The features beyond the joint ones. They count as uncorrelated with all others once their mean is subtracted,
    which is what rare features share.

    Attributes
    ----------
    X : the rows' entries in these features, columns counted from 0.
    scale : float32 (d - h,)
        Inverse of the diagonal of A.
    with_mean : float64 (n,)
        Inner product of each row with the mean row, weighted by `scale`.
    mean_square : that of the mean row with itself.
    """

    X: SparseRows
    scale: Float32
    with_mean: Float64
    mean_square: float


class RidgeSystem(NamedTuple):
    """The part of a ridge regression that all labels share: ``A = X'X + mu I`` over the rows that count.

    Attributes
    ----------
    X : the rows' entries in the h joint features.
    factor : float32 (h, h)
        Cholesky factor of A over the joint features, as `xcore.numeric.cholesky` keeps it.
    rest : the other features; with d = h there are none.
    """

    X: JointRows
    factor: Float32
    rest: Rest

    @property
    def n_joint(self) -> int:
        return len(self.factor)


def with_intercept(X: CSR) -> CSR:
    """The rows with a last feature that is 1 in all of them; the penalty on its weight is negligible for many rows."""
    ends = X.indptr[1:]
    return csr(
        np.insert(X.data, ends, np.float32(1)),
        np.insert(X.indices, ends, X.shape[1]),
        X.indptr + np.arange(len(X.indptr)),
        X.shape[1] + 1,
    )


def ridge_system(X: CSR, counted: Int64, penalty: float, max_joint: int) -> RidgeSystem:
    """Factor the system once for all labels.

    Cost O(nnz(X) nnz(row) + h^3) with h = min(d, max_joint); memory O(nnz(X) + h^2) float32.

    Parameters
    ----------
    X : CSR float32 (n, d)
    counted : rows that take part in the regression; the others only get scores.
    penalty : mu, in units of a row's squared length.
    max_joint : maximum number of features with correlations; those with the largest sums of squares.
    """
    taking_part = np.zeros(X.shape[0], bool)
    taking_part[counted] = True
    kept = np.repeat(taking_part, np.diff(X.indptr))
    energy = np.bincount(X.indices[kept], X.data[kept].astype(np.float64) ** 2, X.shape[1])
    h = min(X.shape[1], max_joint)
    order = np.argsort(-energy, kind="stable")
    joint, others = np.sort(order[:h]), order[h:]
    rows = JointRows.of(X[:, joint] if len(others) else X)
    factor = _factor(rows, taking_part, penalty, h)
    mean = np.bincount(X.indices[kept], X.data[kept], X.shape[1])[others] / max(len(counted), 1)
    spread = np.maximum(energy[others] - len(counted) * mean**2, 0.0)
    return RidgeSystem(rows, factor, _rest(X[:, others], 1.0 / (spread + penalty), mean))


def _factor(rows: JointRows, taking_part: npt.NDArray[np.bool_], penalty: float, h: int) -> Float32:
    need_array((h, h), "the matrix of the joint features", "Set joint_features lower.", entry_bytes=8)
    gram = np.zeros((h, h), np.float32)
    cuts = np.linspace(0, h, _GRAM_BLOCKS + 1).astype(np.int64)
    over_blocks(lambda b: _add_gram(rows, taking_part, cuts[b], cuts[b + 1], gram), range(_GRAM_BLOCKS))
    gram[np.diag_indices(h)] += np.float32(penalty)
    with single_threaded_blas():
        return cholesky.factorise(gram)


def sketch_rows(system: RidgeSystem) -> Float32:
    """Z (n, r) with ``Z Z' = X A^-1 X'`` over the joint features: rows to compare without a solve.

    Exact for h up to 1024. Beyond, ``Z = X U^-1 R`` with ``A = U'U`` and random signs R, whose mean is right and which
    puts an entry off by about ``|z_i| |z_j| / sqrt(r)``; r = 1024, and less only above 2 GB. Cost O(r (nnz(X) + h^2)).
    """
    rows, factor = system.X, system.factor
    n, h = len(rows.indptr) - 1, len(factor)
    width = min(_SKETCH, max(_SKETCH // 8, _MOST_SKETCHED // max(n, 1)))
    if h <= width:
        signs = np.eye(h, dtype=np.float32)
    else:
        coins = np.random.default_rng(0).integers(0, 2, (h, width), np.int8)
        signs = (coins.astype(np.float32) * 2 - 1) / np.float32(np.sqrt(width))
    with single_threaded_blas():
        half = cholesky.solve_upper(factor, np.ascontiguousarray(signs.T))
    return project_rows(rows, half)


def project_rows(rows: JointRows, directions: Float32) -> Float32:
    """Inner products (n, r) of all rows with some directions (r, h); cost O(r nnz)."""
    panels = in_panels(directions)
    products = np.empty((len(rows.indptr) - 1, len(panels) * PANEL), np.float32)

    def fill(block: range) -> None:
        project(rows, panels, block.start, products[block.start : block.stop])

    over_blocks(fill, even_blocks(np.diff(rows.indptr), _ROW_BLOCKS))
    return np.ascontiguousarray(products[:, : len(directions)])


def scores_of_rest(rest: Rest, targets: Float32) -> Float32:
    """What the features beyond the joint ones add to the scores of all rows, for targets (n, labels)."""
    X = csr(*rest.X, len(rest.scale))
    mass, with_mean = targets.sum(axis=0), rest.with_mean @ targets
    added = X @ (rest.scale[:, None] * (X.T @ targets)) - np.outer(rest.with_mean, mass)
    scores: Float32 = (added + (mass * rest.mean_square - with_mean)[None]).astype(np.float32)
    return scores


def _rest(X: CSR, scale: Float64, mean: Float64) -> Rest:
    with_mean: Float64 = X @ (scale * mean)
    return Rest(SparseRows.of(X), scale.astype(np.float32), with_mean, float(np.sum(scale * mean**2)))


@numba.njit(cache=True, nogil=True)
def _add_gram(X: JointRows, taking_part: npt.NDArray[np.bool_], start: int, stop: int, gram: Float32) -> None:
    """Add the rows ``start <= a < stop`` of X'X, as far as a <= b; entries of X ascend within rows."""
    for row in range(len(taking_part)):
        if not taking_part[row]:
            continue
        end = X.indptr[row + 1]
        first = X.indptr[row] + np.searchsorted(X.indices[X.indptr[row] : end], start)
        while first < end and X.indices[first] < stop:
            sums, value = gram[X.indices[first]], X.data[first]
            for second in range(first, end):
                sums[X.indices[second]] += value * X.data[second]
            first += 1


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


def left_out(rest: Rest, sketch: Float32, groups: Groups) -> LeftOut:
    """The matrices of all groups. Cost O(n g (r + g)), g the size of a group, at most 256."""
    sizes = groups.sizes
    full, last = sizes // FOLD, sizes % FOLD
    first = np.concatenate([[0], np.cumsum(full * FOLD**2 + last**2)])
    need_array((int(first[-1]),), "the matrices of the groups", SMALLER_GROUPS)
    matrices = np.empty(first[-1], np.float32)
    indptr = groups.members.indptr.astype(np.int64)
    members = np.ascontiguousarray(groups.members.indices, np.int32)

    def fill(block: range) -> None:
        _fill_left_out(rest, sketch, indptr, members, first, (block.start, block.stop), matrices)

    with single_threaded_blas():
        over_blocks(fill, even_blocks(sizes, _ROW_BLOCKS))
    return LeftOut(first[:-1], matrices)


@numba.njit(cache=True, nogil=True)
def _fill_left_out(
    rest: Rest,
    sketch: Float32,
    indptr: Int64,
    members: Int32,
    first: Int64,
    groups: tuple[int, int],
    matrices: Float32,
) -> None:
    """Write the matrices of the groups ``groups[0] <= j < groups[1]``."""
    scratch = np.zeros(len(rest.scale), np.float32)
    for group in range(groups[0], groups[1]):
        place = first[group]
        for fold in range(indptr[group], indptr[group + 1], FOLD):
            rows = members[fold : min(fold + FOLD, indptr[group + 1])]
            halves = np.empty((len(rows), sketch.shape[1]), np.float32)
            for i in range(len(rows)):
                halves[i] = sketch[rows[i]]
            hat = np.dot(halves, halves.T).astype(np.float64)
            if len(scratch):
                _add_rest_of_hat(rest, rows, hat, scratch)
            matrix = _without(hat)
            matrices[place : place + matrix.size] = matrix.ravel().astype(np.float32)
            place += matrix.size


@numba.njit(cache=True, nogil=True)
def _add_rest_of_hat(rest: Rest, rows: Int32, hat: Float64, scratch: Float32) -> None:
    """Add what the features beyond the joint ones contribute; `scratch` (d - h,) is zero before and after."""
    X = rest.X
    for i in range(len(rows)):
        own = range(X.indptr[rows[i]], X.indptr[rows[i] + 1])
        for entry in own:
            scratch[X.indices[entry]] = X.data[entry] * rest.scale[X.indices[entry]]
        for j in range(len(rows)):
            for entry in range(X.indptr[rows[j]], X.indptr[rows[j] + 1]):
                hat[i, j] += X.data[entry] * scratch[X.indices[entry]]
            hat[i, j] += rest.mean_square - rest.with_mean[rows[i]] - rest.with_mean[rows[j]]
        for entry in own:
            scratch[X.indices[entry]] = 0.0


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
