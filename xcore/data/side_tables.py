"""Small tables that come with a dataset (labels, groups), read row by row into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xcore.data.readers.cells import BadCell, id_of, labels_of
from xcore.data.readers.family import column_names, csv_records, json_lines, table_batches
from xcore.data.readers.streams import COMPRESSION
from xcore.errors import InputError, Place

BLOCK_BYTES = 1 << 22
ROWS = 1 << 14


def table_rows(path: Path, needed: list[str], wanted: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line and cells of each row; columns in `wanted` may be missing, a missing column in `needed` is an error."""
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSION else path.suffix
    rows: Iterator[tuple[int, Mapping[str, Any] | InputError | None]]
    if suffix == ".parquet":
        rows = _parquet_rows(path, needed, wanted)
    elif suffix in (".jsonl", ".ndjson"):
        rows = json_lines(path, BLOCK_BYTES)
    elif suffix in (".csv", ".tsv"):
        rows = csv_records(path, "\t" if suffix == ".tsv" else ",", needed, [*needed, *wanted], BLOCK_BYTES)
    else:
        raise InputError(Place(str(path)), "unknown kind of table", repr(path.name), ".parquet, .jsonl, .csv or .tsv")
    for line, cells in rows:
        if isinstance(cells, InputError):
            raise cells
        if cells is not None:
            for name in needed:
                if name not in cells:
                    raise InputError(Place(str(path), line, field=name), "missing cell", "nothing", "a value")
            yield line, cells


def _parquet_rows(path: Path, needed: list[str], wanted: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    there = column_names(path)
    names = needed + [name for name in wanted if name in there]
    line = 0
    for batch in table_batches(path, names, ROWS):
        for cells in batch.to_pylist():
            line += 1
            yield line, cells


def id_cell(path: Path, line: int, name: str, cell: Any) -> str:
    """An id, or an error that names the place."""
    try:
        return id_of(cell)
    except BadCell as error:
        raise InputError(Place(str(path), line, field=name), error.problem, error.found, error.expected) from None


def name_cell(path: Path, line: int, name: str, cell: Any) -> str | None:
    """A name, or None where there is none: a text or a number, or an error that names the place."""
    if cell is None or isinstance(cell, float):
        return None if cell is None else str(cell)
    return None if cell == "" else id_cell(path, line, name, cell)


def list_cell(path: Path, line: int, name: str, cell: Any, delimiter: str | None) -> list[str]:
    """A list of ids (null is the empty list), or an error that names the place."""
    try:
        return [] if cell is None or cell == "" else labels_of(cell, delimiter)
    except BadCell as error:
        fix = "Set this file's delimiter." if error.fix else ""
        raise InputError(Place(str(path), line, field=name), error.problem, error.found, error.expected, fix) from None
