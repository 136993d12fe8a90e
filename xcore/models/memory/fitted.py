"""A filled memory: it answers, explains its answers, and takes further labels."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from xcore.embedding.family import load_embedding
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.base import rows_for
from xcore.models.memory.answers import Settings, Values, key_weights
from xcore.models.reasons import Evidence
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, TopK, csr
from xcore.saved import Count, Described, read_json
from xcore.search.graph import Graph
from xcore.search.keys import Keys, unit_rows
from xcore.training.data import LabelSide, Matrix, RowForm
from xcore.training.stages import RowMap


@dataclass(frozen=True)
class FittedMemory:
    """Keys with their values.

    Attributes
    ----------
    n_features, n_labels : int
    embedding : RowMap or None
        What makes vectors of sparse rows; None: the rows are vectors.
    keys : Keys
        First the training rows that have labels, then the names of labels.
    values : Values
    settings : Settings
    width : int
        Candidates that a search through a graph looks at.
    """

    n_features: int
    n_labels: int
    embedding: RowMap | None
    keys: Keys
    values: Values
    settings: Settings
    width: int

    @property
    def form(self) -> RowForm:
        return "vector" if self.embedding is None else "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; ties go to the lower label id. Cost: see `Keys.nearest`."""
        return self._answer(self.keys, self.vectors_of(rows_for(self, X, k)), k)

    def shortlist_recall(self, X: Matrix, k: int) -> float | None:
        """The share of the k best labels of an exact search that the graph finds; None without a graph."""
        if self.keys.graph is None:
            return None
        vectors = self.vectors_of(rows_for(self, X, k))
        found, exact = self._answer(self.keys, vectors, k), self._answer(self.keys.exact(), vectors, k)
        pairs = zip(found.labels, exact.labels, strict=True)
        same = sum(len(np.intersect1d(own[own != NO_LABEL], other[other != NO_LABEL])) for own, other in pairs)
        return same / max(int((exact.labels != NO_LABEL).sum()), 1)

    def evidence(self, X: Matrix, n: int) -> Evidence:
        """The n keys that weigh most in the answer to each row."""
        near = self.keys.nearest(self.vectors_of(rows_for(self, X, n)), self.settings.n_neighbours, self.width)
        n_rows = self.values.rows.shape[0]
        weights = np.array(
            [key_weights(cosines, ids, self.settings.temperature) for ids, cosines in zip(*near, strict=True)]
        ).reshape(near.ids.shape)
        rows = np.where(near.ids < n_rows, near.ids, NO_LABEL)
        label_keys = np.append(self.values.labels, np.int32(NO_LABEL))
        labels = label_keys[np.where(near.ids >= n_rows, near.ids - n_rows, len(self.values.labels))]
        return Evidence(rows[:, :n], labels[:, :n], weights[:, :n])

    def with_labels(self, labels: LabelSide) -> FittedMemory:
        """The same memory with more labels, numbered after those that it knows, which are found by their names.

        Cost O(new labels), and for a memory with a graph that of adding them to it.
        """
        if labels.X is None or not len(self.values.labels):
            what = "their names as rows of its space" if labels.X is None else "a memory that knows label names"
            raise ConfigError(
                f"new labels need {what}: train on a dataset of texts with a label table that has names, and give the "
                "names of the new labels"
            )
        vectors = self.vectors_of(rows_for(self, labels.X, 1))
        n_labels, old = self.n_labels + len(vectors), self.values.rows
        rows = csr(old.data, old.indices, old.indptr, n_labels)
        numbers = np.arange(self.n_labels, n_labels, dtype=np.int32)
        values = Values(rows, np.concatenate([self.values.labels, numbers]))
        return replace(self, n_labels=n_labels, keys=self.keys.extended(vectors), values=values)

    def vectors_of(self, rows: Matrix) -> Float32:
        """Unit vectors of rows in the form that it takes."""
        return unit_rows(rows if self.embedding is None else self.embedding.transform(rows))

    def _answer(self, keys: Keys, vectors: Float32, k: int) -> TopK:
        near = keys.nearest(vectors, self.settings.n_neighbours, self.width)
        return self.values.answer(near, self.settings, k)

    def save(self, directory: Path) -> None:
        """Write ``model.json``, ``memory.safetensors`` and the embedding, if there is one."""
        rows, graph = self.values.rows, self.keys.graph
        arrays = {
            "keys": self.keys.vectors,
            "indptr": rows.indptr,
            "indices": rows.indices,
            "values": rows.data,
            "key_labels": self.values.labels,
        }
        write_arrays(directory / "memory.safetensors", arrays | (graph.arrays() if graph else {}))
        if self.embedding is not None:
            self.embedding.save(directory)
        about = {
            "kind": "memory",
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "has_embedding": self.embedding is not None,
            "has_graph": graph is not None,
            "width": self.width,
            **self.settings._asdict(),
        }
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        embedding = load_embedding(directory) if about.has_embedding else None
        if embedding is not None and embedding.n_features != about.n_features:
            raise ArtifactDamaged(
                f"{directory}: the embedding takes {embedding.n_features} features, the model {about.n_features}; make "
                "the artifact again"
            )
        dimensions = embedding.dimensions if embedding else about.n_features
        with ArrayFile(directory / "memory.safetensors") as file:
            keys = file.take("keys", np.float32, (None, dimensions)).finite().within(-1.001, 1.001)
            if not len(keys.array):
                keys.refuse("is empty", "at least one key")
            labels = file.take("key_labels", np.int32, (None,)).within(0, about.n_labels).array
            indices = file.take("indices", np.int32, (None,)).within(0, about.n_labels)
            n_rows = len(keys.array) - len(labels)
            indptr = file.take("indptr", np.int64, (n_rows + 1,)).offsets(len(indices.array)).array
            indices.ascending(indptr)
            shape = indices.array.shape
            values = file.take("values", np.float32, shape).finite().within(0, 1.000001).array
            graph = Graph.take(file, keys.array) if about.has_graph else None
        rows = csr(values, indices.array, indptr, about.n_labels)
        settings = Settings(about.temperature, about.row_share, about.n_neighbours)
        memory = Keys(keys.array, graph)
        return cls(about.n_features, about.n_labels, embedding, memory, Values(rows, labels), settings, about.width)


class _About(Described):
    """``model.json``."""

    kind: Literal["memory"]
    n_features: Count
    n_labels: Count
    has_embedding: bool
    has_graph: bool
    width: Annotated[int, Field(ge=1, le=100_000)]
    temperature: Annotated[float, Field(gt=0, le=10)]
    row_share: Annotated[float, Field(ge=0, le=1)]
    n_neighbours: Annotated[int, Field(ge=1, le=100_000)]
