"""Sparse features at rest: one Parquet file a split, the CSR arrays as list columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from xcore.matrices import CSR, csr, list_parts, lists_of_csr

SCHEMA = pa.schema([("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
_META = "features.json"


class FeatureWriter:
    """Writes the features of a dataset's splits block by block; used as a context manager."""

    def __init__(self, directory: Path, n_features: int) -> None:
        self.directory, self.n_features = directory, n_features
        self.rows: dict[str, int] = {}
        self.non_zeros: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def write(self, split: str, blocks: Iterable[CSR]) -> None:
        """Write all rows of one split; memory is that of one block."""
        self.rows[split] = self.non_zeros[split] = 0
        with pq.ParquetWriter(self.directory / f"{split}.parquet", SCHEMA, compression="zstd") as writer:
            for block in blocks:
                writer.write_table(pa.table(list(lists_of_csr(block)), schema=SCHEMA))
                self.rows[split] += block.shape[0]
                self.non_zeros[split] += block.nnz

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            meta = {"n_features": self.n_features, "rows": self.rows}
            (self.directory / _META).write_text(json.dumps(meta, sort_keys=True))


class Features:
    """Opens what `FeatureWriter` wrote."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        meta = json.loads((directory / _META).read_text())
        self.n_features: int = meta["n_features"]
        self.splits: tuple[str, ...] = tuple(meta["rows"])

    def X(self, split: str) -> CSR:
        """Features of a split, CSR float32 (n, n_features)."""
        table = pq.read_table(self.directory / f"{split}.parquet")
        offsets, indices = list_parts(table["indices"])
        return csr(list_parts(table["values"])[1], indices, offsets, self.n_features)
