"""Compiled walks through a probabilistic binary tree: draws, probabilities of labels, and the most probable labels.

Nodes are numbered as in a heap: the root is 1, node v has the children 2v (left) and 2v + 1 (right), and the leaves
of a tree of depth T are the nodes from 2^T on. With ``z = w . x + b`` a walk turns right with probability
``sigmoid(z)``. The likelier turn has probability ``1 / (1 + e)``, the other ``e / (1 + e)``, where ``e = exp(-|z|)``;
so a path has

    log p = - sum of |z| over its unlikelier turns - log of the product of (1 + e),

which costs one logarithm a path, never overflows, and gives exactly 0 to an unlikelier turn where ``|z| = 1000``.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from xcore.matrices import NO_LABEL, Float32, Float64, Int32
from xcore.sampling.draws import Keys, unit
from xcore.sampling.prefetch import prefetch

WALKERS = 32  # walks that go down together
LINE = 16  # float32 numbers of a cache line
LEVELS = 64  # more than any tree has: draw j of level t is number LEVELS j + t of its key


class Nodes(NamedTuple):
    """A tree of ``2^depth`` leaves.

    Attributes
    ----------
    weights : float32 (2^depth, k)
        By node; row 0 is not used. Best aligned to cache lines: see `aligned`.
    biases : float32 (2^depth,)
    leaves : int32 (2^depth,)
        Label of each leaf, or `NO_LABEL`.
    places : int32 (n_labels,)
        Leaf of each label.
    depth : int
    """

    weights: Float32
    biases: Float32
    leaves: Int32
    places: Int32
    depth: int


def aligned(array: Float32) -> Float32:
    """A copy in C order that begins at a cache line."""
    padded = np.empty(array.size + LINE, np.float32)
    skipped = (-padded.ctypes.data // 4) % LINE
    copy = padded[skipped : skipped + array.size].reshape(array.shape)
    copy[:] = array
    return copy


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _logit(nodes: Nodes, node: int, x: Float32) -> np.float32:
    total = np.float32(0)
    for f in range(len(x)):
        total += nodes.weights[node, f] * x[f]
    logit: np.float32 = total + nodes.biases[node]
    return logit


@numba.njit(cache=True, nogil=True)
def draw_labels(nodes: Nodes, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None:
    """Fill `labels` and `log_probs` (n, m) with m independent draws a row. Cost O(n m k depth)."""
    n, m = labels.shape
    group, k, n_leaves = max(1, WALKERS // max(m, 1)), X.shape[1], 1 << nodes.depth
    weights = nodes.weights.reshape(-1)
    place, far, product = np.empty(group * m, np.int64), np.empty(group * m), np.empty(group * m)
    for first in range(0, n, group):
        rows = range(first, min(first + group, n))
        place[:], far[:], product[:] = 1, 0.0, 1.0
        # Many walks go down together, so that the next node of each arrives from memory while the others take a step.
        for level in range(nodes.depth):
            for row in rows:
                x, key = X[row], keys[row]
                for j in range(m):
                    i = (row - first) * m + j
                    z = _logit(nodes, place[i], x)
                    e = np.exp(-abs(z))
                    likelier = unit(key, LEVELS * j + level) * (1.0 + e) < 1.0
                    product[i] *= 1.0 + e
                    far[i] += 0.0 if likelier else abs(z)
                    place[i] = 2 * place[i] + (1 if likelier == (z >= 0) else 0)
                    if place[i] < n_leaves:
                        for f in range(0, k, LINE):
                            prefetch(weights, place[i] * k + f)
                        prefetch(nodes.biases, place[i])
        for row in rows:
            for j in range(m):
                i = (row - first) * m + j
                labels[row, j] = nodes.leaves[place[i] - n_leaves]
                log_probs[row, j] = -far[i] - np.log(product[i])


@numba.njit(cache=True, nogil=True)
def log_probs_of(nodes: Nodes, X: Float32, labels: Int32, out: Float32) -> None:
    """Fill `out` (n, m) with ``log p(label | x)`` of `labels` (n, m). Cost O(n m k depth)."""
    for row in range(len(labels)):
        for j in range(labels.shape[1]):
            leaf = (1 << nodes.depth) + nodes.places[labels[row, j]]
            far, product = 0.0, 1.0
            for level in range(nodes.depth):
                z = np.float64(_logit(nodes, leaf >> (nodes.depth - level), X[row]))
                right = (leaf >> (nodes.depth - level - 1)) & 1
                product *= 1.0 + np.exp(-abs(z))
                if (z >= 0) != (right == 1):
                    far += abs(z)
            out[row, j] = -far - np.log(product)


@numba.njit(cache=True, nogil=True)
def all_log_probs(nodes: Nodes, X: Float32, out: Float64) -> None:
    """Fill `out` (n, n_labels) with ``log p(label | x)``, level by level. Cost O(n k n_labels)."""
    reached = np.empty(1 << nodes.depth)
    for row in range(len(X)):
        reached[0] = 0.0
        for level in range(nodes.depth):
            for j in range(
                (1 << level) - 1, -1, -1
            ):  # from the right, so that no parent is overwritten before its turn
                z, here = np.float64(_logit(nodes, (1 << level) + j, X[row])), reached[j]
                near = here - np.log1p(np.exp(-abs(z)))
                far = near - abs(z)
                reached[2 * j], reached[2 * j + 1] = (far, near) if z >= 0 else (near, far)
        for label in range(out.shape[1]):
            out[row, label] = reached[nodes.places[label]]


@numba.njit(cache=True, nogil=True)
def best_leaves(nodes: Nodes, X: Float32, labels: Int32, log_probs: Float32) -> None:
    """Fill `labels` and `log_probs` (n, width) by beam search: the most probable labels first, `NO_LABEL` for none.

    A level keeps the `width` most probable nodes, so a label under a node that falls out is missed.
    Cost O(n width (k + log width) depth).
    """
    n, width = labels.shape
    place, reached = np.empty(2 * width, np.int64), np.empty(2 * width)
    for row in range(n):
        n_kept, place[0], reached[0] = 1, 1, 0.0
        for _ in range(nodes.depth):
            for i in range(n_kept - 1, -1, -1):
                z, here, node = np.float64(_logit(nodes, place[i], X[row])), reached[i], place[i]
                near = here - np.log1p(np.exp(-abs(z)))
                far = near - abs(z)
                place[2 * i], place[2 * i + 1] = 2 * node, 2 * node + 1
                reached[2 * i], reached[2 * i + 1] = (far, near) if z >= 0 else (near, far)
            order = np.argsort(-reached[: 2 * n_kept], kind="mergesort")
            n_kept = min(2 * n_kept, width)
            place[:n_kept], reached[:n_kept] = place[order[:n_kept]], reached[order[:n_kept]]
        labels[row], log_probs[row], n_found = NO_LABEL, -np.inf, 0
        for i in range(n_kept):
            label = nodes.leaves[place[i] - (1 << nodes.depth)]
            if label != NO_LABEL:
                labels[row, n_found], log_probs[row, n_found] = label, reached[i]
                n_found += 1
