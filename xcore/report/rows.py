"""Rows of Parquet files, without reading more than is asked for: in step, batch by batch, or only a few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from xcore.numeric.matrices import list_parts

BATCH_ROWS = 8192
FEW_ROWS = 256


def batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file in order."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=list(columns))


def in_step(*files: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """The same rows of several files, however each of them is cut into batches; ends with the shortest."""
    waiting: list[Any] = [next(file, None) for file in files]
    while all(batch is not None for batch in waiting):
        size = min(batch.num_rows for batch in waiting)
        yield tuple(batch.slice(0, size) for batch in waiting)
        waiting = [
            batch.slice(size) if batch.num_rows > size else next(file, None)
            for batch, file in zip(waiting, files, strict=True)
        ]


def lists(batch: pa.RecordBatch, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """The row of every item of a list column, and the items."""
    offsets, values = list_parts(pa.chunked_array([batch.column(column)]))
    return np.repeat(np.arange(batch.num_rows), np.diff(offsets)), values


def named_in(
    rows: npt.NDArray[np.int64], labels: npt.NDArray[Any], true_rows: npt.NDArray[np.int64], true: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Which of the (row, label) pairs are among the true ones."""
    width = int(max(labels.max(initial=0), true.max(initial=0))) + 1
    return np.isin(rows * width + labels, true_rows * width + true)


def some_rows(path: Path, rows: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """A few rows of a file by their position; only the row groups that hold them are read, in small batches."""
    wanted, found = np.unique(np.asarray(rows, np.int64)), dict[int, dict[str, Any]]()
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        groups = np.searchsorted(starts, wanted, side="right") - 1
        for group in np.unique(groups).tolist():
            here, first = wanted[groups == group], int(starts[group])
            for batch in file.iter_batches(FEW_ROWS, row_groups=[group], columns=list(columns)):
                inside = here[(here >= first) & (here < first + batch.num_rows)]
                found |= zip(inside.tolist(), batch.take(pa.array(inside - first)).to_pylist(), strict=True)
                first += batch.num_rows
                if first > here[-1]:
                    break
    return found


def label_names(directory: Path, labels: Sequence[int]) -> dict[int, str]:
    """Names of a few labels of a dataset; a label without a name goes by its id."""
    found = some_rows(directory / "labels.parquet", labels, ["id", "name"])
    return {label: str(row["name"] or row["id"]) for label, row in found.items()}
