"""A memory of training rows and label names, after RAE-XMC (arXiv 2502.10615): similarity instead of training."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from xcore.embedding.family import AnyEmbedding
from xcore.embedding.pca import Pca
from xcore.errors import ConfigError
from xcore.memory import need_array
from xcore.models.base import Model
from xcore.models.memory.answers import Settings, Values
from xcore.models.memory.fitted import FittedMemory
from xcore.numeric.matrices import CSR, Float32
from xcore.search.graph import Graph
from xcore.search.keys import Keys, unit_rows
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, Wish, canonical_csr
from xcore.training.dev_choice import DEPTH, dev_sample, hits_of, ideal_gains, ndcg
from xcore.training.stages import DeclaredStage

DEV_ROWS = 2000
DEFAULTS = Settings(temperature=0.05, row_share=0.5, n_neighbours=200)
TEMPERATURES = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
ROW_SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
NEIGHBOURS = (50, 100, 200, 400)

T = TypeVar("T")


class Memory(Model):
    """Answers by the nearest training rows and label names: p = softmax(q K' / tau) [lambda Y; (1 - lambda) I].

    Notes
    -----
    - K holds the unit vectors of the training rows that have labels, and of the label names. Only the nearest keys of
      a query count. Nothing is trained, and labels can be added at any time (`FittedMemory.with_labels`).
    - Left out of the paper: its encoder is trained so that this sum fits the labels. Here the encoder is the one of the
      run's text featuriser, as it is.
    - Settings that are not given are those of the best nDCG@5 on at most 2,000 dev rows, else tau 0.05, lambda 0.5 and
      200 neighbours. Without label names lambda is 1.
    - Up to `exact_below` keys every search is exact. Above, it goes through a graph (HNSW). One thread builds
      it, so that its bits are the same. A killed build starts again.
    - Memory: 4 d bytes per key, and 150 more with a graph.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("vector", "sparse")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})
    resumes: ClassVar[bool] = False  # nothing is trained

    kind: Literal["memory"] = "memory"
    temperature: float | None = Field(
        None,
        gt=0,
        le=10,
        description="Temperature of the softmax over cosines. A low one listens to the nearest keys alone. Empty: "
        "chosen on dev rows, else 0.05.",
    )
    row_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of the training rows; the label names have the rest. Empty: chosen on dev rows, else 0.5.",
    )
    n_neighbours: int | None = Field(
        None, ge=1, le=10_000, description="Number of keys that count per row. Empty: chosen on dev rows, else 200."
    )
    label_names: Literal["auto", "required", "unused"] = Field(
        "auto",
        description="auto: label names are keys if the dataset has them. required: fail without them. unused: training "
        "rows only.",
    )
    exact_below: int = Field(
        200_000,
        ge=0,
        description="Number of keys up to which every search is exact. Above, a graph is searched, which is faster and "
        "may miss some keys. It needs the extra memory.",
    )
    search_width: int = Field(
        400, ge=1, le=10_000, description="Candidates per search of the graph. More find more and take more time."
    )
    embedding: AnyEmbedding = Field(
        Pca(dimensions=256, whiten=False),
        description="What makes vectors of sparse rows. Not used if the rows are vectors.",
    )

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        """Sparse rows are embedded first."""
        return {} if form == "vector" else {"embedding": DeclaredStage(self.embedding)}

    def _fit(self, data: TrainingData, context: FitContext) -> FittedMemory:
        embedding = data.stage("embedding").fitted if "embedding" in data.stages else None
        X: Float32 = data.X if embedding is None else data.stage("embedding").X
        n_features = int(data.X.shape[1]) if embedding is None else embedding.n_features
        context.report(0, 3)
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        names = self._names(data)
        shape = (len(labelled) + (0 if names is None else data.n_labels), X.shape[1])
        n_copies = 2 if shape[0] <= self.exact_below else 3
        need_array(shape, "the keys", "Set embedding.dimensions lower, or use fewer rows.", entry_bytes=4 * n_copies)
        vectors = [unit_rows(X[labelled])]
        if names is not None:
            vectors.append(unit_rows(names if embedding is None else embedding.transform(names)))
        keys = np.concatenate(vectors)
        if not len(keys):
            raise ConfigError(f"none of the {data.Y.shape[0]} training rows has a label: a memory needs at least one")
        values = Values(canonical_csr(data.Y[labelled]), np.arange(len(keys) - len(labelled), dtype=np.int32))
        graph = Graph.build(keys) if len(keys) > self.exact_below else None
        context.report(1, 3)
        start = self._settings(has_names=names is not None)[0]
        memory = FittedMemory(n_features, data.n_labels, embedding, Keys(keys, graph), values, start, self.search_width)
        rows = dev_sample(data.dev, DEV_ROWS)
        metrics: dict[str, float] = {}
        if rows is not None:
            memory, metrics = self._chosen(memory, *rows)
        context.report(3, 3, metrics)
        return memory

    def _names(self, data: TrainingData) -> Matrix | None:
        """The names of all labels as rows of the same space; None where they are not used."""
        labels = data.labels
        if self.label_names == "unused":
            return None
        if labels is not None and labels.X is not None and labels.is_named:
            return labels.X
        if self.label_names == "required":
            raise ConfigError(
                "label_names is required, but the labels have no names as rows of the training rows' space: give a "
                "label table with names (data.labels) to a dataset of texts, or set label_names to auto"
            )
        return None

    def _settings(self, has_names: bool) -> list[Settings]:
        """Settings to choose from; the first is taken where there is nothing to choose by."""
        shares = (1.0,) if not has_names else _given(self.row_share, ROW_SHARES, DEFAULTS.row_share)
        grid = product(
            _given(self.temperature, TEMPERATURES, DEFAULTS.temperature),
            shares,
            _given(self.n_neighbours, NEIGHBOURS, DEFAULTS.n_neighbours),
        )
        return [Settings(*one) for one in grid]

    def _chosen(self, memory: FittedMemory, X: Matrix, truth: CSR) -> tuple[FittedMemory, dict[str, float]]:
        """The memory with the settings of the best nDCG@5; of equal ones the first."""
        choices = self._settings(has_names=len(memory.values.labels) > 0)
        most = max(one.n_neighbours for one in choices)
        near, ideal = memory.keys.nearest(memory.vectors_of(X), most, memory.width), ideal_gains(truth)
        found = [ndcg(hits_of(memory.values.answer(near, one, DEPTH).labels, truth), ideal) for one in choices]
        best = choices[int(np.argmax(found))]
        return replace(memory, settings=best), {**best._asdict(), "dev_ndcg_at_5": max(found)}

    @classmethod
    def load(cls, directory: Path) -> FittedMemory:
        """Open a model that `FittedMemory.save` wrote."""
        return FittedMemory.load(directory)


def _given(value: T | None, others: tuple[T, ...], default: T) -> tuple[T, ...]:
    """A given value alone, or the default and then the others."""
    return (value,) if value is not None else (default, *(other for other in others if other != default))
