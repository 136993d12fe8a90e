"""A trained network of concepts as plain arrays: predictions need no torch, and a row's bits depend on that row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp

from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, row_blocks, vectors_of_images
from xcore.numeric.products import product_of_rows
from xcore.training.data import Matrix

BLOCK_FLOATS = 2**22


@dataclass(frozen=True)
class Concepts:
    """``max over concepts of relu(relu(x A + a) W' + b)`` for each label (V2 of the paper).

    Attributes
    ----------
    table : float32 (n_features, width)
    hidden_bias : float32 (width,)
    weights : float32 (concepts m, width)
        Concept c of label k has row ``c m + k``.
    concept_bias : float32 (concepts m,)
    label_bias : float32 (m,)
        Added after all pooling. The paper has none, but without it no probability could be below one half.
    """

    table: Float32
    hidden_bias: Float32
    weights: Float32
    concept_bias: Float32
    label_bias: Float32

    @property
    def n_features(self) -> int:
        return len(self.table)

    @property
    def n_concepts(self) -> int:
        return len(self.concept_bias) // len(self.label_bias)

    def values(self, X: Matrix) -> Float32:
        """V2 of some rows, float32 (n, m), all at least 0. Cost O(nnz width + n width concepts m)."""
        n_labels = len(self.label_bias)
        out = np.empty((X.shape[0], n_labels), np.float32)
        columns = np.ascontiguousarray(self.table.T)
        for part in row_blocks(X.shape[0], max(1, BLOCK_FLOATS // max(len(self.weights), self.n_features))):
            hidden = _times_table(X[part], self.table, columns) + self.hidden_bias
            found = product_of_rows(np.maximum(hidden, np.float32(0)), self.weights) + self.concept_bias
            best = found.reshape(len(found), self.n_concepts, n_labels).max(axis=1)
            out[part] = np.maximum(best, np.float32(0))
        return out

    def arrays(self) -> dict[str, Float32]:
        """All weights, by name."""
        names = ("table", "hidden_bias", "weights", "concept_bias", "label_bias")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def take(cls, file: ArrayFile, n_features: int, width: int, n_concepts: int, n_labels: int) -> Self:
        """What `arrays` gave, from a file; every array is checked."""
        shapes = {
            "table": (n_features, width),
            "hidden_bias": (width,),
            "weights": (n_concepts * n_labels, width),
            "concept_bias": (n_concepts * n_labels,),
            "label_bias": (n_labels,),
        }
        return cls(**{name: file.take(name, np.float32, shape).finite().array for name, shape in shapes.items()})


def similarities(X: Matrix, embeddings: Float32) -> Float32:
    """Inner products (n, m) of rows, scaled to unit length, with label embeddings (m, d). Cost O(nnz m)."""
    if sp.issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1), np.float32).reshape(-1, 1)
        products = np.asarray(X @ np.ascontiguousarray(embeddings.T), np.float32)
    else:
        dense = _dense(X)
        squares, products = np.square(dense).sum(axis=1, keepdims=True), product_of_rows(dense, embeddings)
    return np.divide(products, np.sqrt(squares), out=np.zeros_like(products), where=squares > 0)


def _times_table(X: Matrix, table: Float32, columns: Float32) -> Float32:
    if sp.issparse(X):
        return np.asarray(X @ table, np.float32)
    return product_of_rows(_dense(X), columns)


def _dense(X: Matrix) -> Float32:
    return vectors_of_images(X) if X.dtype == np.uint8 else np.ascontiguousarray(X, np.float32)
