"""A dataset on disk, as `ingest` writes it and everything after reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from xcore.data.readers.base import SPLITS, Form, Split
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.matrices import CSR, binary_csr, csr, list_parts

FORMAT = 1
LABEL_LISTS = pa.field("labels", pa.list_(pa.int32()))


def feature_schema(form: Form, n_features: int) -> pa.Schema:
    """The feature columns of a split."""
    if form == "sparse":
        return pa.schema([("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    if form == "text":
        return pa.schema([("text", pa.string())])
    return pa.schema([("vector", pa.list_(pa.float32(), n_features))])


class Dataset:
    """Opens a dataset; nothing but its description is read until asked for.

    Parameters
    ----------
    directory : Path
        What `xcore.data.ingest.ingest` filled.

    Attributes
    ----------
    form : 'sparse', 'text' or 'vector'
        What the features are.
    n_labels, n_features : int
        Sizes of the spaces; text has no features yet, so 0.
    splits : list of str
        Those of train, dev and test that there are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            described = json.loads((directory / "dataset.json").read_text())
        except (OSError, ValueError) as error:
            raise ArtifactDamaged(f"{directory} holds no dataset: {error}; expected what ingest writes") from None
        if described["format"] != FORMAT:
            raise ArtifactDamaged(
                f"{directory} has dataset format {described['format']}, expected {FORMAT}: ingest the source again"
            )
        self.form: Form = described["form"]
        self.n_labels, self.n_features = int(described["n_labels"]), int(described["n_features"])
        self.n_label_features: int | None = described["n_label_features"]
        self._sizes: dict[str, dict[str, int]] = described["splits"]
        self.splits: list[Split] = [split for split in SPLITS if split in self._sizes]

    def n_rows(self, split: Split) -> int:
        """How many rows a split has."""
        return self._size(split)["rows"]

    def X(self, split: Split) -> CSR:
        """Features, CSR float32 (n, n_features); a vector is a row without gaps. Cost O(nnz)."""
        if self.form == "text":
            raise ConfigError(f"{self.directory} holds text, not features: make features of it first (text_blocks)")
        size, path = self._size(split), self.directory / f"{split}.parquet"
        if self.form == "sparse":
            return read_csr(path, size["rows"], size["nnz"], self.n_features)
        vectors = pq.read_table(path, columns=["vector"])["vector"].combine_chunks().flatten().to_numpy()
        indices = np.tile(np.arange(self.n_features, dtype=np.int32), size["rows"])
        return csr(vectors, indices, np.arange(size["rows"] + 1) * self.n_features, self.n_features)

    def vectors(self, split: Split) -> npt.NDArray[np.float32]:
        """Dense features (n, n_features) of a dataset of vectors."""
        if self.form != "vector":
            raise ConfigError(f"{self.directory} holds {self.form} rows, not vectors")
        return read_vectors(self.directory / f"{split}.parquet", self.n_rows(split), self.n_features)

    def blocks(self, split: Split) -> FeatureBlocks:
        """Features a block of rows at a time, as often as asked."""
        self._size(split)
        return FeatureBlocks(self.directory / f"{split}.parquet", self.n_features)

    def Y(self, split: Split) -> CSR:
        """Labels, CSR with entries 1 (n, n_labels); all empty for train rows whose labels belong to groups."""
        return self._label_lists(f"{split}.parquet", split)

    def truth(self, split: Split) -> CSR | None:
        """The rows' own labels where only their groups' labels may be learnt from; None where they are not known."""
        name = f"{split}_truth.parquet"
        return self._label_lists(name, split) if (self.directory / name).exists() else None

    def own_labels(self, split: Split) -> CSR:
        """The rows' own labels as far as they are known: the truth where groups hide it, else `Y`."""
        truth = self.truth(split)
        return self.Y(split) if truth is None else truth

    def text_blocks(self, split: Split, block: int = 8192) -> Iterator[pa.StringArray]:
        """The texts in order, at most `block` rows at a time; memory is one row group."""
        if self.form != "text":
            raise ConfigError(f"{self.directory} holds {self.form} rows, not text")
        self._size(split)
        with pq.ParquetFile(self.directory / f"{split}.parquet") as file:
            for batch in file.iter_batches(batch_size=block, columns=["text"]):
                yield batch.column(0)

    def row_ids(self, split: Split) -> pa.ChunkedArray:
        """The rows' ids (strings)."""
        self._size(split)
        return pq.read_table(self.directory / f"{split}_rows.parquet")["id"]

    def label_table(self) -> pa.Table:
        """``id``, ``name``, ``parents`` and ``train_count`` of each label, in the order of their numbers."""
        return pq.read_table(self.directory / "labels.parquet")

    def label_texts(self) -> list[str]:
        """The name of each label, or its id where it has no name."""
        table = self.label_table()
        return [name or own for own, name in zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True)]

    def label_features(self) -> CSR | None:
        """Features of the labels (n_labels, n_label_features), where the source has them."""
        if self.n_label_features is None:
            return None
        path = self.directory / "label_features.parquet"
        return read_csr(path, self.n_labels, None, self.n_label_features)

    def groups(self) -> pa.Table | None:
        """``id``, ``members`` (positions in train), ``labels`` and ``counts`` of each group; None without groups."""
        path = self.directory / "groups.parquet"
        return pq.read_table(path) if path.exists() else None

    def quarantine(self) -> pa.Table | None:
        """The rows that were set aside, with the reason; None where there are none."""
        path = self.directory / "quarantine.parquet"
        return pq.read_table(path) if path.exists() else None

    def _label_lists(self, name: str, split: Split) -> CSR:
        self._size(split)
        offsets, labels = list_parts(pq.read_table(self.directory / name, columns=["labels"])["labels"])
        return binary_csr(labels, offsets, self.n_labels)

    def _size(self, split: Split) -> dict[str, int]:
        if split not in self._sizes:
            raise ConfigError(f"{self.directory} has no {split} split, only {', '.join(self._sizes)}")
        return self._sizes[split]


@dataclass(frozen=True)
class FeatureBlocks:
    """The features of a file in blocks of rows, CSR or dense as they are stored; every loop opens the file anew."""

    path: Path
    n_features: int
    groups: int = 4  # row groups of a block

    def __iter__(self) -> Iterator[Any]:
        with pq.ParquetFile(self.path) as file:
            is_dense = "vector" in file.schema_arrow.names
            for first in range(0, file.num_row_groups, self.groups):
                chosen = list(range(first, min(first + self.groups, file.num_row_groups)))
                table = file.read_row_groups(chosen, columns=["vector"] if is_dense else ["indices", "values"])
                yield self._dense(table) if is_dense else self._sparse(table)

    def _dense(self, table: pa.Table) -> npt.NDArray[np.float32]:
        flat: npt.NDArray[np.float32] = table["vector"].combine_chunks().flatten().to_numpy()
        return flat.reshape(table.num_rows, self.n_features)

    def _sparse(self, table: pa.Table) -> CSR:
        offsets, indices = list_parts(table["indices"])
        return csr(list_parts(table["values"])[1], indices, offsets, self.n_features)


def read_vectors(path: Path, rows: int, n_features: int) -> npt.NDArray[np.float32]:
    """The ``vector`` column of a file, float32 (rows, n_features), filled block by block."""
    vectors, row = np.empty((rows, n_features), np.float32), 0
    for block in FeatureBlocks(path, n_features):
        vectors[row : row + len(block)] = block
        row += len(block)
    return vectors


def read_csr(path: Path, rows: int, nnz: int | None, n_columns: int) -> CSR:
    """The ``indices`` and ``values`` of a file as CSR, filled row group by row group, so that nothing is held twice."""
    if nnz is None:
        nnz = len(list_parts(pq.read_table(path, columns=["indices"])["indices"])[1])
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
