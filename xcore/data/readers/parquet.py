"""Parquet tables, read column by column and block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xcore.data.readers.cells import BadCell, as_label_lists, as_strings, as_vectors, with_nul
from xcore.data.readers.streams import need_file
from xcore.data.readers.tables import RawRows, TableReader
from xcore.errors import InputError, Place

BYTES_A_ROW = 1 << 12  # a long text; rows are read by number, since their size is known only after


class ParquetReader(TableReader):
    """Parquet with named columns."""

    kind: Literal["parquet"] = "parquet"

    def raw_rows(
        self, path: Path, columns: Mapping[str, str], block_bytes: int, optional: Collection[str] = ()
    ) -> Iterator[RawRows]:
        there = column_names(path) if optional else []
        columns = {role: name for role, name in columns.items() if role not in optional or name in there}
        first_row = 1
        for batch in table_batches(path, list(columns.values()), max(1, block_bytes // BYTES_A_ROW)):
            lines = np.arange(first_row, first_row + batch.num_rows, dtype=np.int64)
            first_row += batch.num_rows
            yield self._converted(str(path), batch, lines, columns)

    def _converted(self, file: str, batch: pa.RecordBatch, lines: np.ndarray, columns: Mapping[str, str]) -> RawRows:
        """The columns in the types that all tables share."""
        found: dict[str, pa.Array] = {}
        bad: dict[int, InputError] = {}
        for role, name in columns.items():
            column = batch.column(name)
            try:
                if role == "labels":
                    found[role] = as_label_lists(column, self.label_delimiter)
                else:
                    found[role] = as_vectors(column) if role == "vector" else as_strings(column)
            except BadCell as error:
                place = Place(file, field=name)
                raise InputError(place, error.problem, error.found, error.expected, error.fix) from None
            found[role] = _decodable(found[role], file, name, lines, bad)
            if role != "vector":
                _find_nul(found[role], file, name, lines, bad)
        return RawRows(lines, found, bad)


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    with _opened(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """An open file; what goes wrong with it now or later is an `InputError`."""
    need_file(path)
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(Place(str(path)), "truncated or damaged file", message, "a whole Parquet file") from None


def table_batches(path: Path, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The named columns of a Parquet file, at most `rows` at a time."""
    with _opened(path) as file:
        there = list(file.schema_arrow.names)
        for name in names:
            place = Place(str(path), field=name)
            if name not in there:
                raise InputError(place, "missing column", ", ".join(there)[:200], f"a column '{name}'")
            if there.count(name) > 1:
                raise InputError(place, "repeated column", f"{there.count(name)} columns of this name", "one")
        if file.metadata.num_rows == 0:
            raise InputError(Place(str(path)), "empty file", "0 rows", "at least one row", "Leave the file out.")
        yield from file.iter_batches(batch_size=rows, columns=names)


def _find_nul(column: pa.Array, file: str, name: str, lines: np.ndarray, bad: dict[int, InputError]) -> None:
    """Mark rows with a NUL in a text, or in one of their labels."""
    is_list = pa.types.is_list(column.type)
    marked = np.flatnonzero(with_nul(column.flatten() if is_list else column))
    if is_list and len(marked):
        marked = pc.list_parent_indices(column).to_numpy()[marked]
    for row in np.unique(marked).tolist():
        place = Place(file, int(lines[row]), field=name)
        bad.setdefault(row, InputError(place, "NUL character", "a text with NUL", "a text without NUL"))


def _decodable(column: pa.Array, file: str, name: str, lines: np.ndarray, bad: dict[int, InputError]) -> pa.Array:
    """The column with rows emptied and marked where their bytes are no UTF-8 (which Parquet does not check)."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return column
    cells = []
    binary = pa.binary() if pa.types.is_string(column.type) else pa.list_(pa.binary())
    for row, cell in enumerate(column.view(binary).to_pylist()):
        try:
            cells.append([None if x is None else x.decode() for x in cell] if isinstance(cell, list) else
                         None if cell is None else cell.decode())  # fmt: skip
        except UnicodeDecodeError as error:
            place, found = Place(file, int(lines[row]), field=name), f"byte 0x{error.object[error.start]:02x}"
            bad.setdefault(row, InputError(place, "undecodable bytes", found, "UTF-8"))
            cells.append(None)
    return pa.array(cells, column.type)
