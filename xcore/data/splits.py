"""Second pass: staged rows into the Parquet files of each split, with final label numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.data.dataset import LABEL_LISTS
from xcore.data.feature_files import feature_schema
from xcore.data.readers.base import SPLITS, Form, Split
from xcore.data.readers.sparse_rows import list_array, sort_lists
from xcore.data.staging import StagedSplit
from xcore.data.writing import RowWriter
from xcore.numeric.matrices import Int32, list_parts

# Labels beside the rows: their own; none, because groups have them; or none, with their own kept as the truth.
RowLabels: TypeAlias = Literal["own", "none", "truth"]


@dataclass(frozen=True)
class Plan:
    """What is known once all rows are staged.

    Attributes
    ----------
    shift : int
        To be taken from each feature id.
    final : int32
        Final number of each provisional label number.
    goes_to : dict
        For each staged split the number of the split to which each row goes; below 0: nowhere.
    """

    form: Form
    n_features: int
    shift: int
    final: Int32
    goes_to: dict[Split, npt.NDArray[np.int8]]


def write_split(
    directory: Path, split: Split, staged: dict[Split, StagedSplit], plan: Plan, row_labels: RowLabels
) -> dict[str, int]:
    """Write the rows, their ids and, if they are the truth, their own labels apart; returns the sizes.

    Cost O(nnz); memory is one row group and one staged block.
    """
    features = feature_schema(plan.form, plan.n_features)
    sizes = {"rows": 0, "nnz": 0, "label_nnz": 0, "rows_without_labels": 0}
    with ExitStack() as stack:
        rows = stack.enter_context(RowWriter(directory / f"{split}.parquet", features.append(LABEL_LISTS)))
        ids = stack.enter_context(RowWriter(directory / f"{split}_rows.parquet", pa.schema([("id", pa.string())])))
        truth = None
        if row_labels == "truth":
            truth = stack.enter_context(RowWriter(directory / f"{split}_truth.parquet", pa.schema([LABEL_LISTS])))
        for batch in _batches_of(split, staged, plan):
            table = pa.table({name: _features(batch.column(name), name, plan) for name in features.names})
            own = _labels(batch.column("labels"), plan)
            shown = own if row_labels == "own" else list_array(np.zeros(len(own) + 1, np.int64), np.zeros(0, np.int32))
            rows.write(table.append_column("labels", shown))
            ids.write(pa.table({"id": _ids(batch)}))
            if truth is not None:
                truth.write(pa.table({"labels": own}))
            lengths = np.diff(list_parts(pa.chunked_array([shown]))[0])
            sizes["rows"] += len(own)
            sizes["nnz"] += _entries(batch, plan.form)
            sizes["label_nnz"] += int(lengths.sum())
            sizes["rows_without_labels"] += int((lengths == 0).sum())
    return sizes


def _batches_of(split: Split, staged: dict[Split, StagedSplit], plan: Plan) -> Iterator[pa.RecordBatch]:
    """All staged rows that go to a split, in order."""
    number = SPLITS.index(split)
    for origin, rows in staged.items():
        if not (plan.goes_to[origin] == number).any():
            continue
        start = 0
        for batch in rows.batches():
            kept = plan.goes_to[origin][start : start + batch.num_rows] == number
            start += batch.num_rows
            if kept.any():
                yield batch if kept.all() else batch.filter(pa.array(kept))


def _features(column: pa.Array, name: str, plan: Plan) -> pa.Array:
    if name != "indices" or plan.shift == 0:
        return column
    offsets, indices = list_parts(pa.chunked_array([column]))
    return list_array(offsets, indices - np.int32(plan.shift))


def _labels(column: pa.Array, plan: Plan) -> pa.ListArray:
    """Ascending final label numbers."""
    offsets, labels = list_parts(pa.chunked_array([column]))
    final = plan.final[labels]
    sort_lists(offsets, final, np.zeros(len(final), np.int8))
    return list_array(offsets, final)


def _ids(batch: pa.RecordBatch) -> pa.Array:
    """The row's own id, or its number in the split as it was read."""
    return batch.column("id" if "id" in batch.schema.names else "row").cast(pa.string())


def _entries(batch: pa.RecordBatch, form: Form) -> int:
    if form == "sparse":
        return len(list_parts(pa.chunked_array([batch.column("indices")]))[1])
    if form == "text":
        return 0
    column = batch.schema.field(form).type
    size: int = column.byte_width if form == "image" else column.list_size
    return int(batch.num_rows) * size
