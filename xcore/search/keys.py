"""Unit vectors as keys, and the nearest of them to a query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numba
import numpy as np

from xcore.numeric.matrices import NO_LABEL, Float32, Int32, Int64, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.products import product_of_rows
from xcore.numeric.topk import best_first, clear, offer
from xcore.search.graph import Graph

BLOCK_SCORES = 2**24
BLOCK_ROWS = 256
UNIT_ROWS = 8192


class Near(NamedTuple):
    """The nearest keys of some queries, nearest first: ids (q, n), -1 for none, and their cosines."""

    ids: Int32
    cosines: Float32


def unit_rows(X: Float32) -> Float32:
    """Rows of length 1; rows of zeros stay zero."""
    unit = np.zeros(X.shape, np.float32)
    for part in row_blocks(len(X), UNIT_ROWS):
        rows = X[part].astype(np.float64)
        norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        unit[part] = np.divide(rows, norms, out=np.zeros(rows.shape), where=norms > 0)
    return unit


@dataclass(frozen=True)
class Keys:
    """Unit vectors, searched one by one or through a graph.

    Attributes
    ----------
    vectors : float32 (n, d)
    graph : Graph or None
        None: every search is exact.
    """

    vectors: Float32
    graph: Graph | None = None

    def exact(self) -> Keys:
        """The same keys without the graph."""
        return replace(self, graph=None)

    def extended(self, more: Float32) -> Keys:
        """With more keys behind the others."""
        if self.graph is None:
            return Keys(np.concatenate([self.vectors, more]))
        graph = self.graph.extended(more)
        return Keys(graph.vectors, graph)

    def nearest(self, queries: Float32, n: int, width: int) -> Near:
        """The n nearest keys of each unit query; of equal ones the lower id comes first.

        Without a graph it costs O(q keys d); a row's bits depend on that row alone. With one, about O(q width log(keys)
        d), and some of the nearest may be missed.
        """
        n = min(n, len(self.vectors))
        near = Near(np.empty((len(queries), n), np.int32), np.empty((len(queries), n), np.float32))
        if self.graph is not None:
            _rank(queries, self.vectors, self.graph.search(queries, n, width), near)
            return near
        for part in row_blocks(len(queries), max(1, BLOCK_SCORES // max(len(self.vectors), 1))):
            _rank_all(product_of_rows(queries[part], self.vectors), near.ids[part], near.cosines[part])
        return near


def _rank_all(cosines: Float32, ids: Int32, best: Float32) -> None:
    """Fill `ids` and `best` (q, n) with the n largest of each row, the lower id first of equal ones."""

    def fill(part: slice) -> None:
        _rank_dense(cosines[part], ids[part], best[part])

    over_blocks(fill, row_blocks(len(cosines), BLOCK_ROWS))


def _rank(queries: Float32, vectors: Float32, found: Int64, near: Near) -> None:
    """Order what a graph found by cosines that do not depend on the library."""

    def fill(part: slice) -> None:
        _rank_rows(queries[part], vectors, found[part], near.ids[part], near.cosines[part])

    over_blocks(fill, row_blocks(len(queries), BLOCK_ROWS))


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _cosine(query: Float32, key: Float32) -> np.float32:
    total = np.float32(0)
    for f in range(len(query)):
        total += query[f] * key[f]
    return total


@numba.njit(cache=True, nogil=True)
def _rank_rows(queries: Float32, vectors: Float32, found: Int64, ids: Int32, cosines: Float32) -> None:
    clear(cosines, ids)
    for row in range(len(queries)):
        for key in found[row]:
            if key != NO_LABEL:
                offer(cosines[row], ids[row], _cosine(queries[row], vectors[key]), key)
        best_first(cosines[row], ids[row])


@numba.njit(cache=True, nogil=True)
def _rank_dense(cosines: Float32, ids: Int32, best: Float32) -> None:
    clear(best, ids)
    for row in range(len(cosines)):
        for key in range(cosines.shape[1]):
            offer(best[row], ids[row], cosines[row, key], key)
        best_first(best[row], ids[row])
