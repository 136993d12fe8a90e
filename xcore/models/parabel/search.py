"""Beam search for the best labels of a block of rows, one level of the tree after another, all rows together."""

from __future__ import annotations

import numba
import numpy as np

from xcore.models.parabel.calibration import logit
from xcore.models.parabel.forest import Chunks, Int16, Unsigned
from xcore.numeric.matrices import Float32, Int32, Int64
from xcore.numeric.parallel import SparseRows
from xcore.numeric.simd import prefetch
from xcore.numeric.topk import WORST, best_first, clear, offer

CACHE_LINE = 64  # bytes; a weight has two


@numba.njit(cache=True, nogil=True)
def search_forest(
    rows: SparseRows,
    d: int,
    levels: Int64,
    first_children: Int64,
    chunks: Chunks,
    n_trees: int,
    beam: int,
    sharpness: tuple[float, float],
) -> tuple[Int32, Float32]:
    """Follow the `beam` best nodes of each level down every tree.

    Parameters
    ----------
    rows : CSR (n, d)
        Columns ascend within a row.
    levels, first_children : int64
        `Shape.level_starts` and `Shape.child_starts`.
    sharpness : (float, float)
        A child with margin ``m`` takes the share ``sigmoid(s * m)`` of its parent's score, where s is the first number
        for a branch and the second for a label.

    Returns
    -------
    nodes : int32 (n_trees, n, held)
        The leaf nodes reached by each row, ``held <= beam``.
    scores : float32 (n_trees, n, held, widest leaf)
        The logarithm of the score of each of their labels.
    """
    nodes, scores = _search_tree(rows, d, levels, first_children, chunks, 0, beam, sharpness)
    all_nodes, all_scores = np.empty((n_trees, *nodes.shape), np.int32), np.empty((n_trees, *scores.shape), np.float32)
    all_nodes[0], all_scores[0] = nodes, scores
    for tree in range(1, n_trees):
        all_nodes[tree], all_scores[tree] = _search_tree(rows, d, levels, first_children, chunks, tree, beam, sharpness)
    return all_nodes, all_scores


@numba.njit(cache=True, nogil=True)
def _search_tree(
    rows: SparseRows,
    d: int,
    levels: Int64,
    first_children: Int64,
    chunks: Chunks,
    tree: int,
    beam: int,
    sharpness: tuple[float, float],
) -> tuple[Int32, Float32]:
    nodes, scores = np.zeros((len(rows.indptr) - 1, 1), np.int32), np.zeros((len(rows.indptr) - 1, 1), np.float32)
    table = np.empty(0, np.int32)
    for level in range(len(levels) - 1):
        low, high = levels[level], levels[level + 1]
        held, width = nodes.shape[1], np.max(np.diff(first_children[low : high + 1]))
        found = np.full((len(nodes), held, width), WORST)
        # Node by node, not row by row: the weights of a node are read once for all rows that reach it.
        group_starts, pairs = _group_by_node(nodes, low, high)
        for node in range(low, high):
            pairs_here = pairs[group_starts[node - low] : group_starts[node - low + 1]]
            if len(pairs_here):
                at, first = tree * levels[-1] + node, tree * first_children[-1] + first_children[node]
                n_children = first_children[node + 1] - first_children[node]
                table = _add_margins(rows, d, pairs_here, held, chunks, at, first, n_children, table, found)
        steepness = sharpness[1] if high == levels[-1] else sharpness[0]
        for row in range(len(nodes)):
            for slot in range(held):
                for c in range(width):
                    found[row, slot, c] = scores[row, slot] + _log_sigmoid(steepness * found[row, slot, c])
        if high == levels[-1]:
            break
        nodes, scores = _narrow(nodes, found, low, high, min(beam, held * width))
    return nodes, found


@numba.njit(cache=True, nogil=True)
def _log_sigmoid(x: np.float32) -> np.float32:
    # The exponent is never positive, so that no margin overflows.
    return np.float32(min(x, np.float32(0)) - np.log1p(np.exp(-abs(x))))


@numba.njit(cache=True, nogil=True)
def _add_margins(
    rows: SparseRows,
    d: int,
    pairs: Int64,
    held: int,
    chunks: Chunks,
    node: int,
    first: int,
    n_children: int,
    table: Int32,
    found: Float32,
) -> Int32:
    """Write ``w_c . x + b_c`` of all children of a node to ``found[row, slot]`` for each pair ``row * held + slot``.

    Returns the `table` (d,) of a feature's line among the node's, made when it is first needed and left all -1.
    Many rows share one table; few rows find their features by bisection: the same sums in the same order.
    """
    begin, end = chunks.node_lines[node], chunks.node_lines[node + 1]
    features, starts = chunks.features[begin:end], chunks.line_starts[begin + node : end + node + 1]
    begin, end = chunks.node_entries[node], chunks.node_entries[node + 1]
    children, weights = chunks.children[begin:end], chunks.weights[begin:end]
    scales, biases = chunks.scales[first : first + n_children], chunks.biases[first : first + n_children]
    by_table = _table_pays(rows, pairs, held, len(features))
    if by_table:
        table = table if len(table) else np.full(d, -1, np.int32)
        for line in range(len(features)):
            table[features[line]] = line
    for pair in pairs:
        row, out = pair // held, found[pair // held, pair % held]
        columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        values = rows.data[rows.indptr[row] : rows.indptr[row + 1]]
        if by_table:
            lines = table[columns]
        else:
            lines = _lines_of(columns, features, d)
            _fetch_entries(lines, starts, children, weights)
        out[:n_children] = 0
        for f in range(len(columns)):
            if lines[f] >= 0:
                for e in range(starts[lines[f]], starts[lines[f] + 1]):
                    out[children[e]] += values[f] * np.float32(weights[e])
        for c in range(n_children):
            out[c] = out[c] * scales[c] + biases[c]
    if by_table:
        table[features] = -1  # only what was written: clearing all d entries would cost more than a small node
    return table


@numba.njit(cache=True, nogil=True)
def _lines_of(columns: Int32, features: Int32, d: int) -> Int32:
    """Place of each column among the ascending `features`, -1 where it is none of them.

    All columns are bisected in step, so that the memory works on many of them at a time. At most ``d - len(features)``
    columns are missing before a place: it is at most so far below its column.
    """
    n_missing = d - len(features)
    size = min(len(features), n_missing + 1)
    lines = np.empty(len(columns), np.int32)
    for f in range(len(columns)):
        lines[f] = min(max(columns[f] - n_missing, 0), len(features) - size)
    while size > 1:
        half = size >> 1
        # No branch depends on what is found: a wrong guess of the processor would cost more than the step itself.
        for f in range(len(columns)):
            middle = lines[f] + half
            lines[f] = middle if features[middle] <= columns[f] else lines[f]
        size -= half
    for f in range(len(columns)):
        if size == 0 or features[lines[f]] != columns[f]:
            lines[f] = -1
    return lines


@numba.njit(cache=True, nogil=True)
def _fetch_entries(lines: Int32, starts: Int32, children: Unsigned, weights: Int16) -> None:
    """Ask for the entries of all lines at once: they lie apart, and a lone row finds few of them in the cache."""
    for line in lines:
        if line >= 0:
            for e in range(starts[line], starts[line + 1], CACHE_LINE // 2):
                prefetch(children, e)
                prefetch(weights, e)


@numba.njit(cache=True, nogil=True)
def _table_pays(rows: SparseRows, pairs: Int64, held: int, n_lines: int) -> bool:
    """Whether the rows have so many features that filling a table of lines costs less than their bisections."""
    n_features = 0
    for pair in pairs:
        n_features += rows.indptr[pair // held + 1] - rows.indptr[pair // held]
    return n_features * 8 > n_lines


@numba.njit(cache=True, nogil=True)
def _group_by_node(nodes: Int32, low: int, high: int) -> tuple[Int64, Int64]:
    """Places of the flat `nodes`, grouped by node: where each group starts, and the places."""
    starts = np.zeros(high - low + 1, np.int64)
    for node in nodes.flat:
        starts[node - low + 1] += 1
    starts = np.cumsum(starts)
    ends, pairs = starts.copy(), np.empty(nodes.size, np.int64)
    for pair, node in enumerate(nodes.flat):
        pairs[ends[node - low]] = pair
        ends[node - low] += 1
    return starts, pairs


@numba.njit(cache=True, nogil=True)
def _narrow(nodes: Int32, found: Float32, low: int, high: int, beam: int) -> tuple[Int32, Float32]:
    """The `beam` best children of each row; child ``c`` of node ``low + j`` is node ``high + j * arity + c``."""
    n, held, arity = found.shape
    kept, scores = np.empty((n, beam), np.int32), np.empty((n, beam), np.float32)
    clear(scores, kept)
    for row in range(n):
        for slot in range(held):
            first = high + (nodes[row, slot] - low) * arity
            for c in range(arity):
                offer(scores[row], kept[row], found[row, slot, c], first + c)
    return kept, scores


@numba.njit(cache=True, nogil=True)
def best_labels(
    nodes: Int32,
    found: Float32,
    first_leaf: int,
    edges: Int64,
    orders: Int32,
    n_labels: int,
    slopes: Float32,
    offsets: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Find the best labels of each row by the mean over trees of ``exp(log-score)``; equal ones by ascending label.

    Parameters
    ----------
    nodes, found : (n_trees, n, held) and (n_trees, n, held, width)
        Of `search_forest`.
    edges : int64
        Places of each leaf node's labels in the `orders` (n_trees, seen labels) of label ids.
    slopes, offsets : float32 (n_labels,) or empty
        The score becomes ``sigmoid(slope * logit(score) + offset)`` of its label.
    labels, scores : int32, float32 (n, k)
        The result; ``NO_LABEL`` and ``-inf`` where a row has fewer than k labels.
    """
    n_trees, n, held, width = found.shape
    clear(scores, labels)
    total = np.full(n_labels if n_trees > 1 else 0, WORST)
    touched, sums = np.empty(n_trees * held * width, np.int32), np.empty(n_trees * held * width, np.float32)
    for row in range(n):
        n_touched = 0
        for tree in range(n_trees):
            for slot in range(held):
                leaf = nodes[tree, row, slot] - first_leaf
                for c in range(edges[leaf + 1] - edges[leaf]):
                    # One tree names a label once. With several, `total` finds the earlier mention of a label, and is
                    # put back below for the labels that were touched: L entries per row would cost more than the row.
                    label = orders[tree, edges[leaf] + c]
                    share = np.float32(np.exp(found[tree, row, slot, c]) / n_trees)
                    if n_trees > 1 and total[label] >= 0:
                        total[label] += share
                        continue
                    touched[n_touched], sums[n_touched] = label, share
                    n_touched += 1
                    if n_trees > 1:
                        total[label] = share
        for t in range(n_touched):
            label = touched[t]
            score = sums[t] if n_trees == 1 else total[label]
            if len(slopes):
                score = np.float32(1 / (1 + np.exp(-slopes[label] * logit(score) - offsets[label])))
            offer(scores[row], labels[row], score, label)
            if n_trees > 1:
                total[label] = WORST
        best_first(scores[row], labels[row])
