"""Sparse features at rest: one Parquet file a split, the CSR arrays as list columns."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from xcore.data.dataset import feature_schema, read_csr
from xcore.data.writing import RowWriter
from xcore.matrices import CSR, lists_of_csr

SCHEMA = feature_schema("sparse", 0)
_META = "features.json"


class FeatureWriter:
    """Writes the features of a dataset's splits, each block by block; used as a context manager."""

    def __init__(self, directory: Path, n_features: int) -> None:
        self.directory, self.n_features = directory, n_features
        self.rows: dict[str, int] = {}
        self.non_zeros: dict[str, int] = {}
        self._files = ExitStack()
        self._writers: dict[str, RowWriter] = {}

    @property
    def total_rows(self) -> int:
        return sum(self.rows.values())

    def __enter__(self) -> Self:
        return self

    def write(self, split: str, block: CSR) -> None:
        """Add rows (CSR, below 2^31 non-zeros) to a split."""
        if split not in self._writers:
            self._writers[split] = self._files.enter_context(RowWriter(self.directory / f"{split}.parquet", SCHEMA))
            self.rows[split] = self.non_zeros[split] = 0
        self._writers[split].write(pa.table(list(lists_of_csr(block)), schema=SCHEMA))
        self.rows[split] += block.shape[0]
        self.non_zeros[split] += block.nnz

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        meta = {"n_features": self.n_features, "rows": self.rows, "non_zeros": self.non_zeros}
        (self.directory / _META).write_text(json.dumps(meta, sort_keys=True))


class Features:
    """Opens what `FeatureWriter` wrote."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        meta = json.loads((directory / _META).read_text())
        self.n_features: int = meta["n_features"]
        self._rows: dict[str, int] = meta["rows"]
        self._non_zeros: dict[str, int] = meta["non_zeros"]

    def X(self, split: str) -> CSR:
        """Features of a split, CSR float32 (n, n_features)."""
        path = self.directory / f"{split}.parquet"
        return read_csr(path, self._rows[split], self._non_zeros[split], self.n_features)
