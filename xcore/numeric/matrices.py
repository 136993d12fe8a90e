"""Sparse rows in memory (scipy CSR) and at rest (Arrow list columns), and the one result type of all models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
CSR: TypeAlias = Any  # scipy.sparse.csr_array; scipy ships no types

NO_LABEL = -1


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first.

    Attributes
    ----------
    labels : int32 (n, k)
        Label ids; ``NO_LABEL`` where a model offers fewer than k labels.
    scores : float32 (n, k)
        Non-increasing along each row; ``-inf`` where there is no label.
    """

    labels: Int32
    scores: Float32

    def __post_init__(self) -> None:
        if self.labels.shape != self.scores.shape or self.labels.ndim != 2:
            raise ValueError(f"labels {self.labels.shape} and scores {self.scores.shape} must be one (n, k) shape")

    @property
    def k(self) -> int:
        return int(self.labels.shape[1])

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def to_table(self) -> pa.Table:
        """Lists of the predicted labels and scores, one table row per row."""
        offered = self.labels != NO_LABEL
        offsets = np.concatenate([[0], np.cumsum(offered.sum(axis=1))]).astype(np.int32)
        return pa.table(
            {
                "labels": pa.ListArray.from_arrays(offsets, pa.array(self.labels[offered], pa.int32())),
                "scores": pa.ListArray.from_arrays(offsets, pa.array(self.scores[offered], pa.float32())),
            }
        )

    @classmethod
    def from_table(cls, table: pa.Table, k: int | None = None) -> TopK:
        """Inverse of `to_table`; `k` defaults to the longest list."""
        offsets, labels = list_parts(table["labels"])
        _, scores = list_parts(table["scores"])
        sizes = np.diff(offsets)
        width = int(sizes.max(initial=0)) if k is None else k
        result = cls(
            np.full((len(sizes), width), NO_LABEL, np.int32), np.full((len(sizes), width), -np.inf, np.float32)
        )
        column = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
        row, kept = np.repeat(np.arange(len(sizes)), sizes), column < width
        result.labels[row[kept], column[kept]] = labels[kept]
        result.scores[row[kept], column[kept]] = scores[kept]
        return result


def topk_of_dense(scores: npt.NDArray[np.floating[Any]], k: int) -> TopK:
    """The k largest of each row of a dense block; ties go to the lower label id.

    Cost O(n L + n k log k).
    """
    n, n_labels = scores.shape
    width = min(k, n_labels)
    if width < n_labels:
        # argpartition may pick any of several labels tied at the k-th place: take all of them, then the lowest ids.
        kth = -np.partition(-scores, width - 1, axis=1)[:, width - 1 : width]
        sure, tied = scores > kth, scores == kth
        room = width - sure.sum(axis=1, keepdims=True)
        chosen = sure | (tied & (np.cumsum(tied, axis=1) <= room))
        labels = np.nonzero(chosen)[1].reshape(n, width)
    else:
        labels = np.tile(np.arange(n_labels), (n, 1))
    values = np.take_along_axis(scores, labels, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    result = TopK(np.full((n, k), NO_LABEL, np.int32), np.full((n, k), -np.inf, np.float32))
    result.labels[:, :width] = np.take_along_axis(labels, order, axis=1)
    result.scores[:, :width] = np.take_along_axis(values, order, axis=1)
    return result


def csr(data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], n_columns: int) -> CSR:
    """A CSR array of float32 values, int32 column ids and int64 row offsets; arrays of those types are not copied."""
    matrix = sp.csr_array((len(indptr) - 1, n_columns), dtype=np.float32)
    matrix.data = np.ascontiguousarray(data, np.float32)
    matrix.indices = np.ascontiguousarray(indices, np.int32)
    matrix.indptr = np.ascontiguousarray(indptr, np.int64)
    return matrix


def sparse_of_dense(X: Float32) -> CSR:
    """Vectors (n, d) as CSR rows in which every value is stored, zeros too."""
    n, d = X.shape
    return csr(X.reshape(-1), np.tile(np.arange(d, dtype=np.int32), n), np.arange(n + 1) * d, d)


def vectors_of_images(images: npt.NDArray[np.uint8]) -> Float32:
    """Images (n, height, width, channels) as float32 vectors (n, height width channels) with numbers from 0 to 1."""
    flat = images.reshape(len(images), int(np.prod(images.shape[1:])))
    return np.multiply(flat, np.float32(1 / 255), dtype=np.float32)


def sparse_of_images(images: npt.NDArray[np.uint8]) -> CSR:
    """The same vectors as CSR rows. Black pixels are not stored."""
    flat = images.reshape(len(images), int(np.prod(images.shape[1:])))
    lit = flat != 0
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(lit, axis=1))])
    return csr(np.multiply(flat[lit], np.float32(1 / 255), dtype=np.float32), np.nonzero(lit)[1], indptr, flat.shape[1])


def binary_csr(indices: npt.NDArray[Any], indptr: npt.NDArray[Any], n_columns: int) -> CSR:
    """A CSR array with all stored values equal to 1."""
    return csr(np.ones(len(indices), np.float32), indices, indptr, n_columns)


def list_parts(column: pa.ChunkedArray) -> tuple[Int64, npt.NDArray[Any]]:
    """Offsets (n + 1, int64) and flat values of a list column, whatever its chunks; one chunk is not copied."""
    offsets, values, end = [np.zeros(1, np.int64)], [], 0
    for chunk in column.chunks:
        own = chunk.offsets.to_numpy().astype(np.int64)
        offsets.append(own[1:] - own[0] + end)
        values.append(chunk.values.slice(own[0], own[-1] - own[0]).to_numpy(zero_copy_only=False))
        end = int(offsets[-1][-1]) if len(offsets[-1]) else end
    empty = np.zeros(0, column.type.value_type.to_pandas_dtype())
    return np.concatenate(offsets), values[0] if len(values) == 1 else np.concatenate([empty, *values])


def rows_with(offsets: Int64, marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The rows (lists between `offsets`) in which any value is marked."""
    before = np.concatenate([[0], np.cumsum(marked)])
    found: npt.NDArray[np.bool_] = before[offsets[1:]] > before[offsets[:-1]]
    return found


def lists_of_csr(matrix: CSR) -> tuple[pa.Array, pa.Array]:
    """The column ids and the values of a CSR block (below 2^31 non-zeros) as two list columns with the same offsets."""
    offsets = pa.array(matrix.indptr.astype(np.int32))
    indices = pa.ListArray.from_arrays(offsets, pa.array(matrix.indices, pa.int32()))
    values = pa.ListArray.from_arrays(offsets, pa.array(matrix.data, pa.float32()))
    return indices, values


def normalise_rows(matrix: CSR) -> CSR:
    """A copy with every row of Euclidean length 1; all-zero rows stay zero.

    Cost O(nnz); beyond the new values, which share their column ids with `matrix`, memory is that of a block of rows.
    """
    values, indptr = np.empty(len(matrix.data), np.float32), matrix.indptr
    for rows in row_blocks(matrix.shape[0], 1 << 16):
        first, end = indptr[rows.start], indptr[rows.stop]
        sizes, part = np.diff(indptr[rows.start : rows.stop + 1]), matrix.data[first:end].astype(np.float64)
        starts = np.minimum(indptr[rows.start : rows.stop] - first, len(part))
        norms = np.sqrt(np.where(sizes > 0, np.add.reduceat(np.append(part**2, 0.0), starts), 0.0))
        scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        values[first:end] = part * np.repeat(scale, sizes)
    return csr(values, matrix.indices, indptr, matrix.shape[1])


def row_blocks(n_rows: int, block: int) -> Iterator[slice]:
    """Slices that cover ``range(n_rows)`` in order, each of at most `block` rows."""
    for start in range(0, n_rows, block):
        yield slice(start, min(start + block, n_rows))
