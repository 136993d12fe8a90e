"""A small-world graph over vectors (HNSW, Malkov and Yashunin 2018), built and searched by faiss (an optional extra).

The graph is kept as plain arrays. They are checked when they are loaded: faiss itself checks no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numba
import numpy as np

from xcore.errors import ConfigError
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Int32, Int64

LINKS = 16  # of a vector on each level; twice as many on the lowest
MOST_LINKS = 256
BUILD_WIDTH = 5  # candidates per link that are looked at when a vector is added
MOST_LEVELS = 32


@dataclass(frozen=True)
class Graph:
    """Links from each vector to near ones, on several levels.

    Attributes
    ----------
    vectors : float32 (n, d)
    neighbours : int32
        Links of all vectors, level by level; -1 for none.
    offsets : int64 (n + 1,)
        Where the links of each vector begin.
    levels : int32 (n,)
        Number of levels of each vector.
    entry : int
        The vector where a search begins.
    """

    vectors: Float32
    neighbours: Int32
    offsets: Int64
    levels: Int32
    entry: int

    @classmethod
    def build(cls, vectors: Float32, links: int = LINKS) -> Self:
        """The graph of some vectors, at least one. Cost about O(n log n links d) in one thread, for the same bits."""
        return cls._filled(_empty_index(vectors.shape[1], links), vectors, vectors)

    @property
    def links(self) -> int:
        """Links of a vector on each level; twice as many on the lowest."""
        return _links_of(self.offsets, self.levels)

    def extended(self, more: Float32) -> Graph:
        """The graph with more vectors."""
        return self._filled(self._new_index(), more, np.concatenate([self.vectors, more]))

    def search(self, queries: Float32, n: int, width: int) -> Int64:
        """Ids (q, n) of near vectors by inner product, in no promised order; -1 for none."""
        faiss = _faiss()
        faiss.omp_set_num_threads(numba.get_num_threads())
        self._index.hnsw.efSearch = max(n, width)
        found: Int64 = self._index.search(np.ascontiguousarray(queries), n)[1]
        return found

    def arrays(self) -> dict[str, Any]:
        """All but the vectors, by name."""
        return {
            "graph.neighbours": self.neighbours,
            "graph.offsets": self.offsets,
            "graph.levels": self.levels,
            "graph.entry": np.array([self.entry], np.int64),
        }

    @classmethod
    def take(cls, file: ArrayFile, vectors: Float32) -> Self:
        """What `arrays` gave, from a file; every link is checked."""
        n = len(vectors)
        levels = file.take("graph.levels", np.int32, (n,)).within(1, MOST_LEVELS)
        neighbours = file.take("graph.neighbours", np.int32, (None,)).within(-1, n)
        offsets = file.take("graph.offsets", np.int64, (n + 1,)).offsets(len(neighbours.array))
        links = _links_of(offsets.array, levels.array)
        is_known = 1 <= links <= MOST_LINKS
        if not is_known or not np.array_equal(np.diff(offsets.array), links * (levels.array.astype(np.int64) + 1)):
            offsets.refuse("does not fit the levels", "the same number of links per level, and twice on the lowest")
        entry = file.take("graph.entry", np.int64, (1,)).within(0, n)
        if levels.array[entry.array[0]] != levels.array.max():
            entry.refuse("is a vector of a low level", "one of the highest level")
        if _first_low_link(neighbours.array, offsets.array, levels.array, links) >= 0:
            neighbours.refuse("leads to a vector that is not on the level of the link", "links within a level")
        return cls(vectors, neighbours.array, offsets.array, levels.array, int(entry.array[0]))

    @classmethod
    def _filled(cls, index: Any, more: Float32, vectors: Float32) -> Self:
        faiss = _faiss()
        faiss.omp_set_num_threads(1)  # threads would add the vectors in any order
        index.add(np.ascontiguousarray(more))
        hnsw = index.hnsw
        found = [faiss.vector_to_array(array) for array in (hnsw.neighbors, hnsw.offsets, hnsw.levels)]
        return cls(vectors, found[0], found[1].astype(np.int64), found[2], int(hnsw.entry_point))

    def _new_index(self) -> Any:
        """An index of faiss with this graph."""
        faiss = _faiss()
        index = _empty_index(self.vectors.shape[1], self.links)
        faiss.downcast_index(index.storage).add(np.ascontiguousarray(self.vectors))
        index.ntotal = len(self.vectors)
        hnsw = index.hnsw
        faiss.copy_array_to_vector(np.ascontiguousarray(self.neighbours), hnsw.neighbors)
        faiss.copy_array_to_vector(self.offsets.astype(np.uint64), hnsw.offsets)
        faiss.copy_array_to_vector(np.ascontiguousarray(self.levels), hnsw.levels)
        hnsw.entry_point, hnsw.max_level = self.entry, int(self.levels.max()) - 1
        return index

    @cached_property
    def _index(self) -> Any:
        return self._new_index()

    def __getstate__(self) -> dict[str, Any]:
        """Without the index of faiss, which is made again when it is needed."""
        return {name: value for name, value in vars(self).items() if name != "_index"}


@numba.njit(cache=True)
def _first_low_link(neighbours: Int32, offsets: Int64, levels: Int32, links: int) -> int:
    """The first link above the lowest level that leads to a vector which is not on that level; -1 if there is none."""
    for vector in range(len(levels)):
        for level in range(1, levels[vector]):
            start = offsets[vector] + links * (level + 1)
            for at in range(start, start + links):
                if neighbours[at] >= 0 and levels[neighbours[at]] <= level:
                    return at
    return -1


def _links_of(offsets: Int64, levels: Int32) -> int:
    return int(offsets[1] - offsets[0]) // (int(levels[0]) + 1)


def _empty_index(dimensions: int, links: int) -> Any:
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(dimensions, links, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_WIDTH * links
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            "a memory of this size needs the package faiss-cpu, which is not installed: pip install 'eyrie[memory]', "
            "or raise exact_below to search all keys"
        ) from None
    return faiss
