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

from xcore.numeric.draws import Keys, skipped, unit
from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, Int64
from xcore.numeric.simd import LANES, dot, prefetch

WALKERS = 256  # walks that go down together
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
    padded = np.empty(array.size + LANES, np.float32)
    skipped = (-padded.ctypes.data // 4) % LANES
    copy = padded[skipped : skipped + array.size].reshape(array.shape)
    copy[:] = array
    return copy


class _Flat(NamedTuple):
    """Weights and features in one dimension, for `xcore.numeric.simd`; to make one costs more than a logit does."""

    weights: Float32
    biases: Float32
    x: Float32
    k: int


@numba.njit(cache=True, nogil=True)
def _flat(nodes: Nodes, X: Float32) -> _Flat:
    return _Flat(nodes.weights.reshape(-1), nodes.biases, X.reshape(-1), X.shape[1])


@numba.njit(inline="always")
def _logit(flat: _Flat, node: int, row: int) -> np.float32:
    logit: np.float32 = dot(flat.weights, node * flat.k, flat.x, row * flat.k, flat.k) + flat.biases[node]
    return logit


@numba.njit(cache=True, nogil=True)
def rows_together(m: int) -> int:
    """Number of rows per batch; each row has m walks."""
    return max(1, WALKERS // max(m, 1))


class _Walkers(NamedTuple):
    """Walks that go down together; of each its row, its random numbers, and where it stands."""

    rows: Int64
    keys: Keys
    places: Int64
    far: Float64
    products: Float64
    z: Float32
    chances: Float64


@numba.njit(cache=True, nogil=True)
def _walkers(n: int) -> _Walkers:
    whole, real = np.empty((2, n), np.int64), np.empty((3, n))
    return _Walkers(whole[0], np.empty(n, np.uint64), whole[1], real[0], real[1], np.empty(n, np.float32), real[2])


@numba.njit(cache=True, nogil=True)
def _gather(walkers: _Walkers, first: int, last: int, m: int, keys: Keys) -> None:
    """Put m walkers at the root for each row from `first` to `last`."""
    for row in range(first, last):
        for j in range(m):
            i = (row - first) * m + j
            walkers.rows[i], walkers.keys[i] = row, skipped(keys[row], LEVELS * j)
            walkers.places[i], walkers.far[i], walkers.products[i] = 1, 0.0, 1.0


@numba.njit(cache=True, nogil=True)
def _look(flat: _Flat, walkers: _Walkers, begin: int, end: int, level: int, others: Int64) -> None:
    """Logits and random numbers for walkers `begin` to `end`; meanwhile the nodes of others are asked for."""
    for i in range(begin, end):
        walkers.z[i] = _logit(flat, walkers.places[i], walkers.rows[i])
        walkers.chances[i] = unit(walkers.keys[i], level)
        if i - begin < len(others):
            for f in range(0, flat.k, LANES):
                prefetch(flat.weights, others[i - begin] * flat.k + f)
            prefetch(flat.biases, others[i - begin])


@numba.njit(cache=True, nogil=True)
def _turn(z: Float32, chances: Float64, places: Int64, far: Float64, products: Float64) -> None:
    """Move walkers from nodes with logits z to a child: a loop without calls or jumps, which becomes vector code."""
    for i in range(len(z)):
        e = np.exp(-abs(z[i]))
        likelier = chances[i] * (1.0 + e) < 1.0
        products[i] *= 1.0 + e
        far[i] += 0.0 if likelier else abs(z[i])
        places[i] = 2 * places[i] + (1 if likelier == (z[i] >= 0) else 0)


@numba.njit(cache=True, nogil=True)
def draw_labels(nodes: Nodes, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None:
    """Fill `labels` and `log_probs` (n, m) with m independent draws per row. Cost O(n m k depth).

    Walks are processed in two halves: while one half takes a step, the nodes of the other are prefetched.
    """
    n, m = labels.shape
    group, flat = rows_together(m), _flat(nodes, X)
    walkers = _walkers(group * m)
    for first in range(0, n, group):
        last = min(first + group, n)
        n_walks = (last - first) * m
        _gather(walkers, first, last, m, keys)
        for level in range(nodes.depth):
            for begin, end, others in (
                (0, n_walks // 2, walkers.places[n_walks // 2 : n_walks]),
                (n_walks // 2, n_walks, walkers.places[: n_walks // 2]),
            ):
                _look(flat, walkers, begin, end, level, others)
                _turn(
                    walkers.z[begin:end], walkers.chances[begin:end], walkers.places[begin:end],
                    walkers.far[begin:end], walkers.products[begin:end],
                )  # fmt: skip
        for i in range(n_walks):
            labels[first + i // m, i % m] = nodes.leaves[walkers.places[i] - (1 << nodes.depth)]
            log_probs[first + i // m, i % m] = -walkers.far[i] - np.log(walkers.products[i])


@numba.njit(cache=True, nogil=True)
def log_probs_of(nodes: Nodes, X: Float32, labels: Int32, out: Float32) -> None:
    """Fill `out` (n, m) with ``log p(label | x)`` of `labels` (n, m). Cost O(n m k depth)."""
    flat = _flat(nodes, X)
    for row in range(len(labels)):
        for j in range(labels.shape[1]):
            leaf = (1 << nodes.depth) + nodes.places[labels[row, j]]
            far, product = 0.0, 1.0
            for level in range(nodes.depth):
                z = np.float64(_logit(flat, leaf >> (nodes.depth - level), row))
                right = (leaf >> (nodes.depth - level - 1)) & 1
                product *= 1.0 + np.exp(-abs(z))
                if (z >= 0) != (right == 1):
                    far += abs(z)
            out[row, j] = -far - np.log(product)


@numba.njit(cache=True, nogil=True)
def all_log_probs(nodes: Nodes, X: Float32, out: Float64) -> None:
    """Fill `out` (n, n_labels) with ``log p(label | x)``, level by level. Cost O(n k n_labels)."""
    reached, flat = np.empty(1 << nodes.depth), _flat(nodes, X)
    for row in range(len(X)):
        reached[0] = 0.0
        for level in range(nodes.depth):
            for j in range(
                (1 << level) - 1, -1, -1
            ):  # from the right, so that no parent is overwritten before its turn
                z, here = np.float64(_logit(flat, (1 << level) + j, row)), reached[j]
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
    (n, width), flat = labels.shape, _flat(nodes, X)
    place, reached = np.empty(2 * width, np.int64), np.empty(2 * width)
    for row in range(n):
        n_kept, place[0], reached[0] = 1, 1, 0.0
        for _ in range(nodes.depth):
            for i in range(n_kept - 1, -1, -1):
                z, here, node = np.float64(_logit(flat, place[i], row)), reached[i], place[i]
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
