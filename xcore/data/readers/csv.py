"""CSV with a header line, and TSV or any other one-character delimiter."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from xcore.data.readers.streams import LONGEST_LINE, MOST_LINES, line_blocks
from xcore.data.readers.tables import CellColumns, RawRows, TableReader
from xcore.errors import InputError, Place


class CsvReader(TableReader):
    """CSV with a header line. The labels of a row are one cell, so they need a delimiter of their own."""

    kind: Literal["csv"] = "csv"
    label_delimiter: str | None = Field(min_length=1, description="Text between two labels in a cell, such as ';'.")
    delimiter: str = Field(
        ",", min_length=1, max_length=1, description="Character between two cells. Use a tab for TSV."
    )
    vector_delimiter: str | None = Field(
        None, min_length=1, description="Text between two numbers of a vector. Empty: white space."
    )

    def raw_rows(
        self, path: Path, columns: Mapping[str, str], block_bytes: int, optional: Collection[str] = ()
    ) -> Iterator[RawRows]:
        rows = CellColumns(str(path), columns, self.label_delimiter, self.vector_delimiter, optional)
        needed = [name for role, name in columns.items() if role not in optional]
        yield from rows.blocks(csv_records(path, self.delimiter, needed, columns.values(), block_bytes))


def csv_records(
    path: Path, delimiter: str, needed: Collection[str], read: Collection[str], block_bytes: int
) -> Iterator[tuple[int, dict[str, str] | InputError | None]]:
    """Each record's first line, and its cells by column or what is wrong with it; None after each block of records.

    The columns that are `needed` must be there. Those that are `read` must not be there twice.
    """
    csv.field_size_limit(LONGEST_LINE)  # one for the whole process; 131,072 characters are less than real texts have
    lines = _Lines(path, block_bytes)
    records = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        line = records.line_num + 1
        try:
            cells = next(records)
        except StopIteration:
            break
        except csv.Error as error:
            lines.undecodable()
            wrong = InputError(Place(str(path), line), "not a CSV record", str(error), "cells, quoted if need be")
            if names is None:
                raise wrong from None
            yield line, wrong
        else:
            if names is None:
                names = _header(path, cells, lines.undecodable(), needed, read)
            elif cells:
                yield line, lines.undecodable() or _record(path, line, names, cells)
        if lines.block_is_full():
            yield line, None
    yield records.line_num, None


def _header(
    path: Path, cells: list[str], undecodable: InputError | None, needed: Collection[str], read: Collection[str]
) -> list[str]:
    if undecodable:
        raise undecodable
    for name in (*needed, *read):
        place = Place(str(path), 1, field=name)
        if name in needed and name not in cells:
            raise InputError(place, "missing column", ", ".join(cells)[:200], f"a column '{name}'", "Name the column.")
        if cells.count(name) > 1:
            raise InputError(
                place, "repeated column", f"{cells.count(name)} columns of this name", "one", "Rename one."
            )
    return cells


def _record(path: Path, line: int, names: list[str], cells: list[str]) -> dict[str, str] | InputError:
    if len(cells) != len(names):
        expected = f"{len(names)}, as the header has"
        return InputError(
            Place(str(path), line), "wrong number of cells", str(len(cells)), expected, "Quote delimiters."
        )
    return dict(zip(names, cells, strict=True))


class _Lines:
    """The decoded lines of a file, for the CSV parser to pull from."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._file, self._number, self._bytes, self._block_bytes = str(path), 0, 0, block_bytes
        self._lines_in_block = 0
        self._undecodable: InputError | None = None
        self._lines = (
            line for block in line_blocks(path, block_bytes) for line in block.text.splitlines(keepends=True)
        )

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._number += 1
        self._bytes += len(line)
        self._lines_in_block += 1
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            place, found = Place(self._file, self._number, error.start + 1), f"byte 0x{line[error.start]:02x}"
            self._undecodable = InputError(place, "undecodable bytes", found, "UTF-8", "Convert the file.")
            return line.decode("utf-8", "replace")

    def undecodable(self) -> InputError | None:
        """What could not be decoded since the last call."""
        error, self._undecodable = self._undecodable, None
        return error

    def block_is_full(self) -> bool:
        """Whether a block of bytes or lines has passed since this was last so."""
        full = self._bytes >= self._block_bytes or self._lines_in_block >= MOST_LINES
        if full:
            self._bytes, self._lines_in_block = 0, 0
        return full
