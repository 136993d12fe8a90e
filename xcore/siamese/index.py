"""Labels found by a vector each: exactly, or through a graph where there are many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int32
from xcore.search.graph import Graph
from xcore.search.keys import Keys

LINKS = 32  # hundreds of labels are asked for per search: with 16 links too many are missed (benchmarks siamese)


@dataclass(frozen=True)
class LabelIndex:
    """Unit vectors of some labels.

    Attributes
    ----------
    labels : int32 (m,)
        Label of each vector, ascending.
    keys : Keys
    n_labels : int
        Number of all labels.
    """

    labels: Int32
    keys: Keys
    n_labels: int

    @classmethod
    def build(cls, vectors: Float32, labels: Int32, exact_below: int) -> Self:
        """An index of some rows of `vectors` (L, d); above `exact_below` labels it has a graph."""
        own = np.ascontiguousarray(vectors[labels])
        return cls(labels, Keys(own, Graph.build(own, LINKS) if len(own) > exact_below else None), len(vectors))

    def nearest(self, queries: Float32, n: int, width: int) -> Int32:
        """The labels (q, n) of the nearest vectors, nearest first; fewer columns where there are fewer labels."""
        ids = self.keys.nearest(queries, n, width).ids
        found: Int32 = np.where(ids == NO_LABEL, NO_LABEL, self.labels[np.maximum(ids, 0)])
        return found

    @cached_property
    def places(self) -> Int32:
        """Place of the vector of each label (L,); -1 where it has none."""
        places = np.full(self.n_labels, NO_LABEL, np.int32)
        places[self.labels] = np.arange(len(self.labels), dtype=np.int32)
        return places

    def extended(self, more: Float32) -> LabelIndex:
        """With labels that are numbered after all others."""
        numbers = np.arange(self.n_labels, self.n_labels + len(more), dtype=np.int32)
        keys = self.keys.extended(more)
        return LabelIndex(np.concatenate([self.labels, numbers]), keys, self.n_labels + len(more))

    def with_unknown(self, n_more: int) -> LabelIndex:
        """With labels that it has no vectors of."""
        return replace(self, n_labels=self.n_labels + n_more)

    def save(self, path: Path) -> None:
        """Write one safetensors file."""
        graph = self.keys.graph
        arrays = {"labels": self.labels, "vectors": self.keys.vectors}
        write_arrays(path, arrays | (graph.arrays() if graph else {}))

    @classmethod
    def load(cls, path: Path, n_labels: int, dimensions: int, has_graph: bool) -> Self:
        """Read what `save` wrote; every array is checked."""
        with ArrayFile(path) as file:
            labels = file.take("labels", np.int32, (None,)).within(0, n_labels).ascending().array
            shape = (len(labels), dimensions)
            vectors = file.take("vectors", np.float32, shape).finite().within(-1.001, 1.001)
            if not len(labels):
                vectors.refuse("is empty", "at least one vector")
            graph = Graph.take(file, vectors.array) if has_graph else None
        return cls(labels, Keys(vectors.array, graph), n_labels)
