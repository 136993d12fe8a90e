"""Parquet tables of sparse rows: a column of feature ids and a column of their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from xcore.data.readers.base import EVERYTHING, INT32_MAX, Block, Form, Part, Reader, Shape, Wanted
from xcore.data.readers.cells import BadCell, as_strings, as_vectors
from xcore.data.readers.parquet import BYTES_A_ROW, table_batches
from xcore.data.readers.sparse_rows import list_array, sort_lists
from xcore.errors import InputError, Place
from xcore.numeric.matrices import Int64, list_parts, rows_with

Marks = npt.NDArray[np.bool_]


class SparseParquetReader(Reader):
    """Parquet with a column of feature ids (from 0) and a column of their values. Labels are not read."""

    kind: Literal["sparse-parquet"] = "sparse-parquet"
    indices: str = Field("indices", description="Column with the feature ids of each row.")
    values: str = Field("values", description="Column with the values of these features.")
    id: str | None = Field(
        None, title="Row id", description="Column with the row ids. Empty: rows are numbered from 0."
    )

    @property
    def form(self) -> Form:
        return "sparse"

    def column_name(self, role: str) -> str:
        return str(getattr(self, role))

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        path, first_line = Path(str(part)), 1
        names = [self.indices, self.values] + ([self.id] if self.id is not None else [])
        for batch in table_batches(path, names, max(1, block_bytes // BYTES_A_ROW)):
            yield self._block(str(path), batch, first_line)
            first_line += batch.num_rows

    def _block(self, file: str, batch: pa.RecordBatch, first_line: int) -> Block:
        judge = _Judge(file, np.arange(first_line, first_line + batch.num_rows, dtype=np.int64))
        offsets, ids, values = self._entries(batch, judge)
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype(np.float32)
            wrong = ~((ids >= 0) & (ids < INT32_MAX) & (ids == np.floor(ids)))
        judge.mark(rows_with(offsets, wrong), self.indices, "not a feature id", "a number", "whole numbers from 0")
        infinite = rows_with(offsets, ~np.isfinite(narrow))
        judge.mark(infinite, self.values, "not a finite value", "NaN or infinite", "numbers that fit a float32")
        whole = np.where(wrong, 0, ids).astype(np.int32)
        twice = np.isin(np.arange(batch.num_rows), sort_lists(offsets, whole, narrow))
        judge.mark(twice, self.indices, "repeated feature id", "one id twice", "each id once")
        columns = {"line": judge.lines, "indices": list_array(offsets, whole), "values": list_array(offsets, narrow)}
        if self.id is not None:
            columns["id"] = self._row_ids(batch, judge)
        return Block(file, pa.record_batch(columns), judge.bad)

    def _entries(self, batch: pa.RecordBatch, judge: _Judge) -> tuple[Int64, Any, Any]:
        """Offsets, ids and values (float64); a row is bad and empty if its two lists differ in length."""
        pair = [judge.read(as_vectors, batch, name) for name in (self.indices, self.values)]
        sizes = [pc.fill_null(pc.list_value_length(lists), -1).to_numpy() for lists in pair]
        for name, size in zip((self.indices, self.values), sizes, strict=True):
            judge.mark(size < 0, name, "row with no features", "null", "a list, which may be empty")
        judge.mark(sizes[0] != sizes[1], self.values, "wrong length", "another length", "as many values as ids")
        good, empty = pa.array((sizes[0] == sizes[1]) & (sizes[0] >= 0)), pa.scalar([], pa.list_(pa.float64()))
        (offsets, ids), (_, values) = (list_parts(pa.chunked_array([pc.if_else(good, x, empty)])) for x in pair)
        return offsets, ids, values

    def _row_ids(self, batch: pa.RecordBatch, judge: _Judge) -> pa.Array:
        ids = pc.fill_null(judge.read(as_strings, batch, str(self.id)), "")
        missing = pc.equal(ids, "").to_numpy(zero_copy_only=False)
        judge.mark(missing, str(self.id), "missing row id", "nothing", "an id")
        return ids


@dataclass(frozen=True)
class _Judge:
    """Collects what is wrong with the rows of a block; the first complaint about a row stays."""

    file: str
    lines: Int64
    bad: dict[int, InputError] = field(default_factory=dict)

    def mark(self, rows: Marks, name: str, problem: str, found: str, expected: str) -> None:
        for row in np.flatnonzero(rows).tolist():
            place = Place(self.file, int(self.lines[row]), field=name)
            self.bad.setdefault(row, InputError(place, problem, found, expected))

    def read(self, convert: Any, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A converted column, or an error that names the column."""
        try:
            return convert(batch.column(name))
        except BadCell as error:
            raise InputError(Place(self.file, field=name), error.problem, error.found, error.expected) from None
