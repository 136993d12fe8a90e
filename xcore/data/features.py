"""Features that a step made of a dataset's rows: sparse or dense, with the interface of a dataset's own."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from xcore.data.feature_files import FeatureFile, FeatureSplits, feature_schema
from xcore.data.readers.base import SPLITS, Form, Split
from xcore.data.writing import RowWriter
from xcore.errors import ConfigError
from xcore.numeric.matrices import Float32, lists_of_csr

_META = "features.json"


class FeatureWriter:
    """Writes the features of a dataset's splits, each block by block; used as a context manager."""

    def __init__(self, directory: Path, n_features: int) -> None:
        self.directory, self.n_features = directory, n_features
        self.form: Form = "sparse"
        self.rows: dict[str, int] = {}
        self.non_zeros: dict[str, int] = {}
        self._files = ExitStack()
        self._writers: dict[str, RowWriter] = {}

    @property
    def total_rows(self) -> int:
        return sum(self.rows.values())

    def __enter__(self) -> Self:
        return self

    def write(self, split: str, block: Any) -> None:
        """Add rows (CSR or dense, below 2^31 values) to a split; all blocks are of the same form."""
        is_dense = isinstance(block, np.ndarray)
        self.form = "vector" if is_dense else "sparse"
        schema = feature_schema(self.form, self.n_features)
        if split not in self._writers:
            self._writers[split] = self._files.enter_context(RowWriter(self.directory / f"{split}.parquet", schema))
            self.rows[split] = self.non_zeros[split] = 0
        columns = [_vectors(block)] if is_dense else list(lists_of_csr(block))
        self._writers[split].write(pa.table(columns, schema=schema))
        self.rows[split] += block.shape[0]
        self.non_zeros[split] += block.size if is_dense else block.nnz

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        meta = {"form": self.form, "n_features": self.n_features, "rows": self.rows, "non_zeros": self.non_zeros}
        (self.directory / _META).write_text(json.dumps(meta, sort_keys=True))


class Features(FeatureSplits):
    """Opens what `FeatureWriter` wrote; nothing but its description is read until asked for.

    Attributes
    ----------
    form : 'sparse' or 'vector'
    n_features : int
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        meta = json.loads((directory / _META).read_text())
        self.form: Form = meta["form"]
        self.n_features: int = meta["n_features"]
        self._rows: dict[str, int] = meta["rows"]
        self._non_zeros: dict[str, int] = meta["non_zeros"]

    @property
    def splits(self) -> list[Split]:
        return [split for split in SPLITS if split in self._rows]

    def n_rows(self, split: Split) -> int:
        """How many rows a split has."""
        return self.features(split).n_rows

    def features(self, split: Split) -> FeatureFile:
        """The features of a split, to be read as `sparse`, `dense` or `blocks`."""
        if split not in self._rows:
            raise ConfigError(f"{self.directory} has no {split} split, only {', '.join(self._rows)}")
        path = self.directory / f"{split}.parquet"
        return FeatureFile(path, self.form, self._rows[split], self.n_features, self._non_zeros[split])


def _vectors(block: Float32) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1), pa.float32()), block.shape[1])
