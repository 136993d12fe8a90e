"""What a node hands to the solver: its rows over their own features, and its children's targets."""

from __future__ import annotations

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Int32, Int64
from xcore.numeric.parallel import SparseRows
from xcore.numeric.simd import LANES, aligned_lines


@numba.njit(cache=True, nogil=True)
def rows_under(positives: SparseRows, labels: Int32) -> Int32:
    """Ascending ids of the rows with a positive among `labels`; `positives` (L, n) are the rows of each label."""
    total = 0
    for label in labels:
        total += positives.indptr[label + 1] - positives.indptr[label]
    found, end = np.empty(total, np.int32), 0
    for label in labels:
        for row in positives.indices[positives.indptr[label] : positives.indptr[label + 1]]:
            found[end] = row
            end += 1
    found.sort()  # a bitmap of all rows would be cleared for every node, and most nodes hold few of them
    n_kept = 0
    for row in found:
        if n_kept == 0 or found[n_kept - 1] != row:
            found[n_kept] = row
            n_kept += 1
    return found[:n_kept].copy()


@numba.njit(cache=True, nogil=True)
def gather_rows(X: SparseRows, d: int, chosen: Int32) -> tuple[SparseRows, Int32]:
    """The chosen rows over their own features, and these features, ascending: few of them fit into the cache."""
    column_of, starts = np.full(d, -1, np.int32), np.zeros(len(chosen) + 1, np.int64)
    for i in range(len(chosen)):
        begin, end = X.indptr[chosen[i]], X.indptr[chosen[i] + 1]
        starts[i + 1] = starts[i] + end - begin
        for e in range(begin, end):
            column_of[X.indices[e]] = 0
    features = np.flatnonzero(column_of == 0).astype(np.int32)
    for column in range(len(features)):
        column_of[features[column]] = column
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    for i in range(len(chosen)):
        at = starts[i]
        for e in range(X.indptr[chosen[i]], X.indptr[chosen[i] + 1]):
            columns[at], values[at] = column_of[X.indices[e]], X.data[e]
            at += 1
    return SparseRows(values, columns, starts), features


@numba.njit(cache=True, nogil=True)
def block_targets(
    positives: SparseRows, order: Int32, edges: Int64, node_rows: Int32, n_rows: int, cost: float
) -> tuple[Int32, Float32]:
    """What up to `LANES` children should answer on each row of a node: ``y / (2 C_i)``.

    Child ``c`` covers places ``edges[c] : edges[c + 1]`` of the label order. Its ``C_i`` is `cost`, for positives times
    the largest weight that the row has there. Returns the line of each row, and the lines (one number a lane); all
    rows without a positive share line 0, where every child says no.
    """
    room = 0
    for label in order[edges[0] : edges[-1]]:
        room += positives.indptr[label + 1] - positives.indptr[label]
    target_of, n_lines = np.zeros(len(node_rows), np.int32), 1
    targets = aligned_lines(min(room, len(node_rows)) + 1)
    targets[:] = -0.5 / cost
    for child in range(len(edges) - 1):
        for label in order[edges[child] : edges[child + 1]]:
            for e in range(positives.indptr[label], positives.indptr[label + 1]):
                row = np.int64(positives.indices[e])
                # The root holds all rows in their order: nothing to look up.
                i = row if len(node_rows) == n_rows else np.searchsorted(node_rows, row)
                if target_of[i] == 0:
                    target_of[i] = n_lines
                    n_lines += 1
                at = target_of[i] * LANES + child
                target = np.float32(0.5 / (cost * positives.data[e]))
                if targets[at] < 0 or target < targets[at]:  # the smallest target has the largest weight
                    targets[at] = target
    return target_of, targets


@numba.njit(cache=True, nogil=True)
def block_chances(positives: SparseRows, order: Int32, edges: Int64, node_rows: Int32, n_rows: int) -> Float32:
    """Chance that a row has any label of each child: ``1 - product of (1 - q)``; one line for each row of a node.

    Child ``c`` covers places ``edges[c] : edges[c + 1]`` of the label order, as in `block_targets`.
    """
    lines: Float32 = aligned_lines(len(node_rows))
    for child in range(len(edges) - 1):
        for label in order[edges[child] : edges[child + 1]]:
            for e in range(positives.indptr[label], positives.indptr[label + 1]):
                row = np.int64(positives.indices[e])
                i = row if len(node_rows) == n_rows else np.searchsorted(node_rows, row)
                at = i * LANES + child
                lines[at] = _either(lines[at], positives.data[e])
    return lines


@numba.njit(cache=True, nogil=True)
def node_chances(positives: SparseRows, labels: Int32, node_rows: Int32) -> Float32:
    """Chance that each row of a node belongs there: that any of the node's labels is the row's."""
    chances = np.zeros(len(node_rows), np.float32)
    for label in labels:
        for e in range(positives.indptr[label], positives.indptr[label + 1]):
            i = np.searchsorted(node_rows, positives.indices[e])
            chances[i] = _either(chances[i], positives.data[e])
    return chances


@numba.njit(cache=True, nogil=True)
def _either(a: np.float32, b: np.float32) -> np.float32:
    """Chance of one or both of two independent events; exactly 1 if either is certain."""
    return a + b * (np.float32(1) - a)


@numba.njit(cache=True, nogil=True)
def kept_weights(lines: Float32, n_features: int, n_children: int, smallest: float) -> tuple[Int32, Int32, Float32]:
    """Feature, child and value of the weights of at least `smallest` in size, by feature, then child."""
    count = 0
    for weight in lines[: n_features * LANES]:
        count += abs(weight) >= smallest and weight != 0
    features, children, weights = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.float32)
    end = 0
    for feature in range(n_features):
        for child in range(n_children):
            weight = lines[feature * LANES + child]
            if abs(weight) >= smallest and weight != 0:
                features[end], children[end], weights[end] = feature, child, weight
                end += 1
    return features, children, weights
