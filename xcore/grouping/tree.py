"""Groups of similar rows, made from clean data to study aggregation: leaves of a tree of balanced 2-means splits."""

from __future__ import annotations

from typing import ClassVar, Literal

import numba
import numpy as np
import scipy.sparse as sp
from pydantic import Field

from xcore.grouping.base import MadeGroups
from xcore.numeric.matrices import CSR, Float64, Int64, csr, normalise_rows
from xcore.numeric.parallel import SparseRows, over_blocks


class _TreeGroups(MadeGroups):
    """Leaves of a tree of balanced 2-means splits."""

    level_name: ClassVar[str] = "depth (2^depth groups)"
    depth: int = Field(
        10,
        ge=0,
        le=30,
        description="Number of times that the rows are split in two (q). There are 2^q groups, so each step "
        "halves their size.",
    )
    iterations: int = Field(20, ge=1, le=1000, description="Maximum number of 2-means iterations per split.")

    @property
    def level(self) -> float:
        return self.depth

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        return _balanced_tree(self._points(normalise_rows(X), rng), self.depth, self.iterations, rng)

    def _points(self, rows: CSR, rng: np.random.Generator) -> CSR:
        return rows


class ClusterGroups(_TreeGroups):
    """Groups of similar rows: balanced spherical 2-means, `depth` times, gives 2^depth groups of equal size (+-1).

    Each split starts from two random members, then alternates centres and a cut at the median of
    ``<x, c_1 - c_2>``. Cost O(nnz(X) depth iterations); extra memory O(n + d) for each thread.
    """

    kind: Literal["clusters"] = "clusters"


class MixedGroups(_TreeGroups):
    """Between clusters and random groups: clusters of ``[(1 - r) x, r u]``, with a random direction u for each row.

    u has coordinates of its own, and in many dimensions a random direction is nearly orthogonal to x in any case
    (cosine about ``dimensions^-1/2``); so the features stay sparse, and r = 0 gives the clusters exactly.
    """

    kind: Literal["mixed"] = "mixed"
    level_name: ClassVar[str] = "heterogeneity"
    heterogeneity: float = Field(
        0.5, ge=0, le=1, description="How mixed the groups are (r). 0: clusters of similar rows; 1: random groups."
    )
    dimensions: int = Field(256, ge=2, le=4096, description="Number of coordinates of the random directions.")

    @property
    def level(self) -> float:
        return self.heterogeneity

    def _points(self, rows: CSR, rng: np.random.Generator) -> CSR:
        r = np.float32(self.heterogeneity)
        if r == 0:
            return rows
        noise = rng.standard_normal((rows.shape[0], self.dimensions), dtype=np.float32)
        noise *= r / np.linalg.norm(noise, axis=1, keepdims=True)
        mixed = sp.hstack([rows * (1 - r), sp.csr_array(noise)], format="csr")
        return normalise_rows(csr(mixed.data, mixed.indices, mixed.indptr, mixed.shape[1]))


def _balanced_tree(X: CSR, depth: int, iterations: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Rows in leaf order and the leaf sizes after `depth` balanced splits of every node."""
    rows, order = SparseRows.of(X), np.arange(X.shape[0])
    bounds = np.array([0, X.shape[0]])
    for _ in range(depth):
        nodes = np.arange(len(bounds) - 1)
        starts = rng.random((len(nodes), 2))

        def split(block: Int64, bounds: Int64 = bounds, starts: Float64 = starts) -> None:
            scratch = np.zeros((2, X.shape[1]))
            for node in block:
                members = order[bounds[node] : bounds[node + 1]]
                _split(rows, members, starts[node], iterations, scratch)

        over_blocks(split, [block for block in np.array_split(nodes, 16) if len(block)])
        middles = (bounds[:-1] + bounds[1:]) // 2
        bounds = np.append(np.column_stack([bounds[:-1], middles]).ravel(), bounds[-1])
    return order, np.diff(bounds)


@numba.njit(cache=True, nogil=True)
def _split(X: SparseRows, members: Int64, start: Float64, iterations: int, scratch: Float64) -> None:
    """Reorder the members of a node so that its first half and its second half are its two children.

    `scratch` (2, d) is zero before and after: only features of the members are touched, since a dense pass over all
    features for each node would cost O(d 2^depth).
    """
    rows, size, half = members.copy(), len(members), len(members) // 2
    if size < 2:
        return
    first = int(start[0] * size)
    second = (first + 1 + int(start[1] * (size - 1))) % size
    left, right = rows[first : first + 1], rows[second : second + 1]
    total, difference, scores = scratch[0], scratch[1], np.empty(size)
    for _ in range(iterations):
        _move_centre(X, left, 1.0, total, difference)
        _move_centre(X, right, -1.0, total, difference)
        for position in range(size):
            dot = 0.0
            for entry in range(X.indptr[rows[position]], X.indptr[rows[position] + 1]):
                dot += X.data[entry] * difference[X.indices[entry]]
            scores[position] = -dot
        for row in rows:
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                difference[X.indices[entry]] = 0.0
        previous = left
        ranked = rows[np.argsort(scores, kind="mergesort")]
        left, right = np.sort(ranked[:half]), np.sort(ranked[half:])
        if len(previous) == half and np.all(previous == left):
            break
    members[:half] = left
    members[half:] = right


@numba.njit(cache=True, nogil=True)
def _move_centre(X: SparseRows, rows: Int64, sign: float, total: Float64, target: Float64) -> None:
    """Add `sign` times the unit vector along the sum of some rows to `target`; `total` is zero before and after."""
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            total[X.indices[entry]] += X.data[entry]
    square = 0.0
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            square += X.data[entry] * total[X.indices[entry]]
    scale = sign / np.sqrt(square) if square > 0 else 0.0
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            target[X.indices[entry]] += scale * total[X.indices[entry]]
            total[X.indices[entry]] = 0.0
