"""The label tree: label embeddings, balanced spherical 2-means, and the shape that follows from arity and depth."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from xcore.memory import free_memory, need_array
from xcore.numeric.matrices import CSR, Float32, Int32, Int64, csr, row_blocks
from xcore.numeric.parallel import SparseRows, over_blocks

ENTRY_BYTES = 2 * 8  # of an embedding: column and value, in the parts and in the whole
SAMPLED_BLOCKS = 16
FEWER_WORDS = "Use fewer features, such as a smaller text.max_features, or fewer labels."
SPLIT_ROUNDS = 20
SPLIT_GAIN = 1e-4  # stop when the mean cosine to the own centre grows by less, as the Parabel paper does


@dataclass(frozen=True)
class Shape:
    """A tree of `depth` levels of splits into `arity` parts, and labels below the last: all follows by arithmetic.

    Node ``j`` of level ``t`` (of ``arity ** t``) covers places ``bounds(t)[j] : bounds(t)[j + 1]`` of the label order.
    Nodes are numbered level by level. Sizes on one level differ by at most one.
    """

    n_labels: int
    arity: int
    depth: int

    @classmethod
    def of(cls, n_labels: int, arity: int, leaf_size: int, depth: int | None = None) -> Shape:
        """The shape with `depth` levels of `arity` parts, or fewer where a part would be empty.

        Without a depth: the fewest levels that give leaves of at most `leaf_size` labels, and then the smallest arity
        that needs no more levels. So leaves are nearly as large as allowed.
        """
        if depth is not None:
            return cls(n_labels, arity, max(t for t in range(depth + 1) if t == 0 or arity**t <= n_labels))
        levels = 0
        while -(-n_labels // arity**levels) > leaf_size:
            levels += 1
        enough = next((a for a in range(2, arity) if -(-n_labels // a**levels) <= leaf_size), arity)
        return cls.of(n_labels, enough, leaf_size, levels)

    @property
    def n_nodes(self) -> int:
        return sum(self.arity**level for level in range(self.depth + 1))

    def bounds(self, level: int) -> Int64:
        """Places where the nodes of a level begin, and the end; int64 (arity ** level + 1,). Below the last: labels."""
        if level > self.depth:
            return np.arange(self.n_labels + 1)
        edges = np.array([0, self.n_labels], np.int64)
        for _ in range(level):
            edges = divide(edges, self.arity)
        return edges

    def level_starts(self) -> Int64:
        """Number of the first node of each level, and the number of nodes; int64 (depth + 2,)."""
        return np.concatenate([[0], np.cumsum([self.arity**level for level in range(self.depth + 1)])]).astype(np.int64)

    def child_starts(self) -> Int64:
        """First classifier of each node, and the number of classifiers of a tree; int64 (n_nodes + 1,)."""
        counts = [np.full(self.arity**level, self.arity) for level in range(self.depth)]
        return np.concatenate([[0], np.cumsum(np.concatenate([*counts, np.diff(self.bounds(self.depth))]))]).astype(
            np.int64
        )


def divide(edges: Int64, parts: int) -> Int64:
    """Edges of the segments that remain when each segment is cut in `parts` of sizes that differ by at most one."""
    sizes = np.diff(edges)
    inner = edges[:-1, None] + sizes[:, None] * np.arange(parts)[None, :] // parts
    return np.append(inner.ravel(), edges[-1])


def embed_labels(X: CSR, positives: CSR, block: int = 256) -> CSR:
    """Label embeddings ``normalise(sum of weight * x over the positives)``; CSR float32 (L, d), columns unsorted.

    Parameters
    ----------
    X : CSR float32 (n, d)
    positives : CSR float32 (L, n)
        Rows of each label with their weights: the transposed label matrix.
    block : int
        Labels that a thread takes at a time.

    Notes
    -----
    Cost O(sum of non-zeros of the positive rows).
    """
    rows, labels, d = SparseRows.of(X), SparseRows.of(positives), X.shape[1]
    blocks = list(row_blocks(positives.shape[0], block))
    _need_room(rows, labels, blocks, d)
    parts = over_blocks(lambda part: _embed_block(rows, labels, part.start, part.stop, d), blocks)
    sizes, columns, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return csr(values, columns, np.append(0, np.cumsum(sizes)), d)


def _need_room(rows: SparseRows, labels: SparseRows, blocks: list[slice], d: int) -> None:
    """Refuse embeddings that do not fit. A bound is cheap; where it is too much, some blocks tell the size of all."""
    used = np.add.reduceat(np.append(np.diff(rows.indptr)[labels.indices], 0), labels.indptr[:-1])
    bound = int(np.minimum(used, d)[np.diff(labels.indptr) > 0].sum())
    if ENTRY_BYTES * bound <= free_memory():
        return
    some = blocks[:: max(1, len(blocks) // SAMPLED_BLOCKS)]
    entries = sum(int(_embed_block(rows, labels, part.start, part.stop, d)[0].sum()) for part in some)
    share = sum(part.stop - part.start for part in some) / (len(labels.indptr) - 1)
    need_array((round(entries / share),), "the embeddings of all labels", FEWER_WORDS, entry_bytes=ENTRY_BYTES)


@numba.njit(cache=True, nogil=True)
def _embed_block(rows: SparseRows, labels: SparseRows, first: int, last: int, d: int) -> tuple[Int64, Int32, Float32]:
    """Sizes, columns and values of the embeddings of labels `first` to `last`."""
    room = 0
    for label in range(first, last):
        used = 0
        for row in labels.indices[labels.indptr[label] : labels.indptr[label + 1]]:
            used += rows.indptr[row + 1] - rows.indptr[row]
        room += min(used, d)
    total, owner = np.zeros(d, np.float64), np.full(d, -1, np.int32)
    sizes, columns, values = np.empty(last - first, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
    end = 0
    for label in range(first, last):
        begin = end
        for e in range(labels.indptr[label], labels.indptr[label + 1]):
            row, weight = labels.indices[e], labels.data[e]
            for f in range(rows.indptr[row], rows.indptr[row + 1]):
                column = rows.indices[f]
                if owner[column] != label:
                    owner[column], total[column], columns[end] = label, 0.0, column
                    end += 1
                total[column] += weight * rows.data[f]
        square = 0.0
        for f in range(begin, end):
            square += total[columns[f]] ** 2
        for f in range(begin, end):
            values[f] = total[columns[f]] / np.sqrt(square) if square > 0 else 0.0
        sizes[label - first] = end - begin
    return sizes, columns[:end].copy(), values[:end].copy()


def order_labels(embeddings: CSR, shape: Shape, rng: np.random.Generator) -> Int32:
    """Labels in the order of the tree's leaves; int32 (L,).

    Every split is made of balanced 2-means steps: labels are sorted by ``v . (c1 - c2)`` and cut at the wanted size,
    centres are the normalised sums, until the mean cosine stops growing. A split in more than two parts bisects again.
    Cost O(rounds * levels * nnz(embeddings)).
    """
    order = np.arange(shape.n_labels, dtype=np.int32)
    vectors = SparseRows.of(embeddings)
    for level in range(shape.depth):
        edges = shape.bounds(level + 1)
        marks = np.arange(0, len(edges), shape.arity)
        while np.diff(marks).max() > 1:
            middles = (marks[:-1] + marks[1:]) // 2
            _bisect_all(vectors, embeddings.shape[1], order, edges[marks], edges[middles], rng)
            marks = np.union1d(marks, middles)
    return order


def _bisect_all(vectors: SparseRows, d: int, order: Int32, edges: Int64, cuts: Int64, rng: np.random.Generator) -> None:
    """Reorder every segment of `order` so that it can be cut at its place of `cuts`; one cut at its start stays."""
    draws = rng.random((len(cuts), 2))
    segments = [i for i in range(len(cuts)) if cuts[i] > edges[i]]
    over_blocks(lambda i: _bisect(vectors, d, order[edges[i] : edges[i + 1]], cuts[i] - edges[i], *draws[i]), segments)


@numba.njit(cache=True, nogil=True)
def _bisect(vectors: SparseRows, d: int, labels: Int32, n_left: int, u: float, v: float) -> None:
    """Reorder `labels` so that its first `n_left` are one part; `u` and `v` in [0, 1) pick the first two centres."""
    n = len(labels)
    first = int(u * n)
    second = (first + 1 + int(v * (n - 1))) % n
    left, right = np.zeros(d, np.float32), np.zeros(d, np.float32)
    _add_vector(vectors, labels[first], left)
    _add_vector(vectors, labels[second], right)
    scores, before = np.empty(n, np.float32), -np.inf
    for _ in range(SPLIT_ROUNDS):
        left -= right
        for i in range(n):
            scores[i] = -_dot(vectors, labels[i], left)
        labels[:] = labels[np.argsort(scores, kind="mergesort")]
        left[:], right[:] = 0, 0
        for i in range(n):
            _add_vector(vectors, labels[i], left if i < n_left else right)
        # The sum of cosines to a normalised sum is the length of that sum.
        left_length, right_length = np.sqrt(np.sum(left * left)), np.sqrt(np.sum(right * right))
        mean = (left_length + right_length) / n
        if mean - before < SPLIT_GAIN:
            break
        before = mean
        left /= max(left_length, np.float32(1e-30))
        right /= max(right_length, np.float32(1e-30))


@numba.njit(cache=True, nogil=True)
def _dot(vectors: SparseRows, i: int, dense: Float32) -> np.float32:
    total = np.float32(0)
    for e in range(vectors.indptr[i], vectors.indptr[i + 1]):
        total += vectors.data[e] * dense[vectors.indices[e]]
    return total


@numba.njit(cache=True, nogil=True)
def _add_vector(vectors: SparseRows, i: int, dense: Float32) -> None:
    for e in range(vectors.indptr[i], vectors.indptr[i + 1]):
        dense[vectors.indices[e]] += vectors.data[e]
