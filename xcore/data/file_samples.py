"""The first rows of a file, and what its format seems to be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from xcore.data.readers.csv import csv_records
from xcore.data.readers.jsonl import json_lines
from xcore.data.readers.parquet import column_names, table_batches
from xcore.data.readers.streams import first_line
from xcore.errors import ConfigError, InputError
from xcore.files import problem_with_file, shown_path

ROWS_LOOKED_AT = 1000
BLOCK_BYTES = 1 << 16
IDX_STARTS = (b"\0\0\x08\x01", b"\0\0\x08\x03", b"\0\0\x08\x04")
LONGEST_HEADER = 1 << 20
COMPRESSED = (".gz", ".zst")
KINDS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv", ".npz": "npz"}
TABLE_KINDS = ("parquet", "jsonl", "csv")
SPARSE = (".txt", ".svm", ".libsvm", ".dat")

_KEY = re.compile(r"\S{1,100}")


@dataclass(frozen=True)
class Sample:
    """The first rows of a file; none if it has no named columns."""

    path: Path
    kind: str
    reason: str
    rows: list[dict[str, Any]]
    delimiter: str | None = None

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def values(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows if row.get(column) is not None]

    def is_list_of(self, column: str, *kinds: type) -> bool:
        lists = [value for value in self.values(column) if isinstance(value, list) and value]
        return bool(lists) and all(isinstance(item, kinds) for value in lists for item in value)

    def is_unique(self, column: str) -> bool:
        values = [str(value) for value in self.values(column)]
        return len(values) == len(self.rows) == len(set(values))

    def holds_keys(self, column: str) -> bool:
        """Whether the values are what tells rows apart: short texts without blanks or whole numbers, all different."""
        values = self.values(column)
        keys = all(isinstance(value, str | int) and _KEY.fullmatch(str(value)) for value in values)
        return keys and self.is_unique(column)

    def mean_length(self, column: str) -> float:
        """Characters of a text; 0 if the column holds anything else."""
        values = self.values(column)
        texts = [value for value in values if isinstance(value, str)]
        return sum(map(len, texts)) / len(texts) if values and len(texts) == len(values) else 0.0


def sample_of(path: Path) -> Sample:
    """Look at a file; rows that cannot be read are passed over where others can.

    Raises
    ------
    ConfigError
        It is missing or empty, or its format is not known.
    InputError
        It is damaged, or none of its first rows can be read.
    """
    _need_path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    suffix = suffixes[-1].lower() if suffixes else ""
    kind = KINDS.get(suffix)
    if kind is None and _is_idx(path):
        return Sample(path, "idx", "it starts as a file of images or classes in MNIST's format does", [])
    if kind is None:
        if suffix not in SPARSE:
            known = ", ".join((*KINDS, *SPARSE))
            raise ConfigError(f"{path}: its format is not known by the suffix {suffix!r}; expected one of {known}")
        kind, reason = _sparse_kind(path)
        return Sample(path, kind, reason, [])
    delimiter = _delimiter(path) if kind == "csv" else None
    rows = _good(islice(_rows(path, kind, delimiter), ROWS_LOOKED_AT))
    if kind in TABLE_KINDS and not rows:
        raise ConfigError(f"{path} holds no rows: there is nothing to look at")
    return Sample(path, kind, f"the file ends in {suffix}", rows, delimiter)


def dimensions(path: Path) -> int:
    """Number of dimensions of what a file in MNIST's format holds."""
    return _start(path)[3]


def _is_idx(path: Path) -> bool:
    """Whether it holds bytes in one dimension (classes), three (grey images) or four (images with channels)."""
    return _start(path) in IDX_STARTS


def _start(path: Path) -> bytes:
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return bytes(stream.read(4))
    except OSError:  # damaged, which a reader explains
        return b""


def _need_path(path: Path) -> None:
    try:
        problem = problem_with_file(path)
        str(path).encode()
    except UnicodeEncodeError:
        problem = "a name that is not UTF-8"
    if problem:
        raise ConfigError(f"file not found: {shown_path(path)} is {problem}; expected a readable file")


def _rows(path: Path, kind: str, delimiter: str | None) -> Iterator[dict[str, Any] | InputError]:
    if kind == "parquet":
        for batch in table_batches(path, column_names(path), ROWS_LOOKED_AT):
            yield from batch.to_pylist()
    elif kind == "jsonl":
        yield from (row for _, row in json_lines(path, BLOCK_BYTES) if row is not None)
    elif kind == "csv":
        yield from (row for _, row in csv_records(path, delimiter or ",", (), (), BLOCK_BYTES) if row is not None)


def _good(rows: Iterator[dict[str, Any] | InputError]) -> list[dict[str, Any]]:
    found = list(rows)
    good = [row for row in found if not isinstance(row, InputError)]
    if not good and isinstance(first := next(iter(found), None), InputError):
        raise first
    return good


def _delimiter(path: Path) -> str:
    header = first_line(path, LONGEST_HEADER) or b""
    return max((",", "\t", ";", "|"), key=lambda sign: header.count(sign.encode()))


def _sparse_kind(path: Path) -> tuple[str, str]:
    first = first_line(path, LONGEST_HEADER) or b""
    if re.fullmatch(rb"\s*\d+\s+\d+\s+\d+\s*", first):
        return "xmc", "its first line has three numbers: rows, features and labels"
    return "libsvm", "its first line is a row of labels and index:value pairs"
