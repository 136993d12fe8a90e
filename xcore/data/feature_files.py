"""Features at rest: one Parquet file for each split, with columns by form, read whole or in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from xcore.data.readers.base import Form, Split
from xcore.errors import ConfigError
from xcore.memory import need_array
from xcore.numeric.matrices import CSR, Float32, csr, list_parts, sparse_of_images, vectors_of_images

Images: TypeAlias = npt.NDArray[np.uint8]

COLUMNS: dict[Form, list[str]] = {
    "sparse": ["indices", "values"],
    "text": ["text"],
    "vector": ["vector"],
    "image": ["image"],
}
INSTEAD: dict[Form, str] = {
    "sparse": "sparse() gives them as CSR",
    "text": "text_blocks() gives the texts; make features of them first",
    "vector": "dense() gives them as an array",
    "image": "images() gives them as an array",
}


def feature_schema(form: Form, n_features: int) -> pa.Schema:
    """The feature columns of a split."""
    if form == "sparse":
        return pa.schema([("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    if form == "text":
        return pa.schema([("text", pa.string())])
    if form == "image":
        # Parquet keeps a list of bytes as 32-bit numbers with two levels each: MNIST took 26 times as long to read.
        return pa.schema([("image", pa.binary(n_features))])
    return pa.schema([("vector", pa.list_(pa.float32(), n_features))])


FEWER_VALUES = "Use fewer rows or fewer features."


@dataclass(frozen=True)
class FeatureFile:
    """The features of one split; nothing is read until asked for.

    Attributes
    ----------
    path : Path
    form : 'sparse', 'text', 'vector' or 'image'
    n_rows, n_features : int
        A vector has `n_features` numbers, an image `n_features` bytes.
    n_entries : int or None
        Entries of sparse rows, where known.
    image_shape : (height, width, channels) or None
    """

    path: Path
    form: Form
    n_rows: int
    n_features: int
    n_entries: int | None = None
    image_shape: tuple[int, int, int] | None = None

    def sparse(self) -> CSR:
        """CSR float32 (n, n_features); a vector becomes a row without gaps, pixels are from 0 to 1. Cost O(nnz)."""
        if self.form == "sparse":
            return read_csr(self.path, self.n_rows, self.n_entries, self.n_features)
        if self.form == "image":
            return sparse_of_images(self.images())
        self._need("vector")
        indices = np.tile(np.arange(self.n_features, dtype=np.int32), self.n_rows)
        offsets = np.arange(self.n_rows + 1) * self.n_features
        return csr(self.dense().reshape(-1), indices, offsets, self.n_features)

    def dense(self) -> Float32:
        """Vectors, float32 (n, n_features); images give one number from 0 to 1 per pixel.

        Sparse rows are refused: they seldom fit into memory as vectors.
        """
        if self.form == "image":
            return vectors_of_images(self.images())
        self._need("vector")
        need_array((self.n_rows, self.n_features), f"the vectors of {self.path.name}", FEWER_VALUES)
        return self._filled(np.empty((self.n_rows, self.n_features), np.float32))

    def images(self) -> Images:
        """Images, uint8 (n, height, width, channels)."""
        self._need("image")
        shape = (self.n_rows, *(self.image_shape or ()))
        need_array(shape, f"the images of {self.path.name}", "Take fewer or smaller images.", entry_bytes=1)
        return self._filled(np.empty(shape, np.uint8))

    def blocks(self) -> FeatureBlocks:
        """The rows in blocks, as often as asked: CSR, float32 (n, n_features) or uint8 images, as they are stored."""
        if self.form == "text":
            raise ConfigError(f"{self.path} holds text rows: {INSTEAD['text']}")
        return FeatureBlocks(self)

    def _need(self, form: Form) -> None:
        if self.form != form:
            raise ConfigError(f"{self.path} holds {self.form} rows, not {form} rows: {INSTEAD[self.form]}")

    def _filled(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        start = 0
        for block in self.blocks():
            rows[start : start + len(block)] = block
            start += len(block)
        return rows


class FeatureSplits:
    """What a dataset and the features that were made of one have in common; subclasses set `form` and `features`.

    Attributes
    ----------
    form : 'sparse', 'text', 'vector' or 'image'
    n_features : int
    """

    form: Form
    n_features: int

    def features(self, split: Split) -> FeatureFile:
        """The features of a split; `ConfigError` where there is no such split."""
        raise TypeError(f"{type(self).__name__} has no features")

    def sparse(self, split: Split) -> CSR:
        """Features of a split as CSR float32 (n, n_features); a vector becomes a row without gaps. Cost O(nnz)."""
        return self.features(split).sparse()

    def dense(self, split: Split) -> Float32:
        """Features of a split that are vectors or images, float32 (n, n_features)."""
        return self.features(split).dense()

    def blocks(self, split: Split) -> FeatureBlocks:
        """Features of a split in blocks of rows, as often as asked: CSR, dense rows or images, as they are stored."""
        return self.features(split).blocks()


@dataclass(frozen=True)
class FeatureBlocks:
    """The features of a file in blocks of rows; every loop opens the file anew."""

    file: FeatureFile
    groups: int = 4  # row groups of a block

    def __iter__(self) -> Iterator[Any]:
        convert = {"sparse": self._sparse, "vector": self._dense, "image": self._images}[self.file.form]
        with pq.ParquetFile(self.file.path) as file:
            for first in range(0, file.num_row_groups, self.groups):
                chosen = list(range(first, min(first + self.groups, file.num_row_groups)))
                yield convert(file.read_row_groups(chosen, columns=COLUMNS[self.file.form]))

    def _dense(self, table: pa.Table) -> Float32:
        flat: Float32 = table["vector"].combine_chunks().flatten().to_numpy()
        return flat.reshape(table.num_rows, self.file.n_features)

    def _images(self, table: pa.Table) -> Images:
        return images_of(table["image"].combine_chunks(), self.file.image_shape or ())

    def _sparse(self, table: pa.Table) -> CSR:
        offsets, indices = list_parts(table["indices"])
        return csr(list_parts(table["values"])[1], indices, offsets, self.file.n_features)


def images_of(column: pa.Array, shape: tuple[int, ...]) -> Images:
    """Images of one shape from a column of their bytes, not copied."""
    size = column.type.byte_width
    content = np.frombuffer(column.buffers()[1], np.uint8, len(column) * size, column.offset * size)
    return content.reshape(len(column), *shape)


def read_csr(path: Path, rows: int, nnz: int | None, n_columns: int) -> CSR:
    """The ``indices`` and ``values`` of a file as CSR, filled row group by row group, so that nothing is held twice."""
    if nnz is None:
        nnz = len(list_parts(pq.read_table(path, columns=["indices"])["indices"])[1])
    need_array((nnz,), f"the values of {path.name}", FEWER_VALUES, entry_bytes=8)
    indptr, indices, data = np.zeros(rows + 1, np.int64), np.empty(nnz, np.int32), np.empty(nnz, np.float32)
    row = entry = 0
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table: Any = file.read_row_group(group, columns=["indices", "values"])
            offsets, own = list_parts(table["indices"])
            indptr[row + 1 : row + len(offsets)] = offsets[1:] + entry
            indices[entry : entry + len(own)] = own
            data[entry : entry + len(own)] = list_parts(table["values"])[1]
            row, entry = row + len(offsets) - 1, entry + len(own)
    return csr(data, indices, indptr, n_columns)
