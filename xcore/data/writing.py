"""Parquet files of a dataset: the same rows give the same bytes, however they came in blocks."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_A_GROUP = 8192


class RowWriter:
    """Writes tables of rows to one Parquet file in row groups of a fixed number of rows.

    Numbers are stored plain under LZ4, the fastest to read of what was measured; texts under Zstandard.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema, self._waiting, self._rows = schema, list[pa.Table](), 0
        codec = {_leaf(field): "zstd" if pa.types.is_string(field.type) else "lz4" for field in schema}
        self._writer = pq.ParquetWriter(path, schema, compression=codec, use_dictionary=False, write_statistics=False)

    def write(self, rows: pa.Table) -> None:
        """Add rows; full row groups go to disk."""
        self._waiting.append(rows.select(self._schema.names).cast(self._schema))
        self._rows += rows.num_rows
        while self._rows >= ROWS_A_GROUP:
            self._write_group(ROWS_A_GROUP)

    def _write_group(self, rows: int) -> None:
        table = pa.concat_tables(self._waiting)
        # One chunk: where blocks began must not show in the file.
        self._writer.write_table(table.slice(0, rows).combine_chunks(), row_group_size=ROWS_A_GROUP)
        self._waiting, self._rows = [table.slice(rows)], table.num_rows - rows

    def close(self) -> None:
        """Write the last rows."""
        if self._rows:
            self._write_group(self._rows)
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._writer.close()


def _leaf(field: pa.Field) -> str:
    """The name under which Parquet knows the values of a column."""
    return f"{field.name}.list.element" if pa.types.is_nested(field.type) else str(field.name)


def write_table(path: Path, table: pa.Table) -> None:
    """A whole table as one file."""
    with RowWriter(path, table.schema) as writer:
        writer.write(table)
