"""The first rows of a file, and what its format seems to be."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xcore.errors import ConfigError

ROWS_LOOKED_AT = 1000
COMPRESSED = (".gz", ".zst")
KINDS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv", ".npz": "npz"}
TABLE_KINDS = ("parquet", "jsonl", "csv")
SPARSE = (".txt", ".svm", ".libsvm", ".dat")


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

    def mean_length(self, column: str) -> float:
        """Characters of a text; 0 if the column holds anything else."""
        values = self.values(column)
        texts = [value for value in values if isinstance(value, str)]
        return sum(map(len, texts)) / len(texts) if values and len(texts) == len(values) else 0.0


def sample_of(path: Path) -> Sample:
    """Look at a file.

    Raises
    ------
    ConfigError
        It is missing or empty, or its format is not known.
    """
    if not path.is_file():
        raise ConfigError(f"file not found: {path}; expected a readable file")
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    suffix = suffixes[-1].lower() if suffixes else ""
    kind = KINDS.get(suffix)
    if kind is None:
        if suffix not in SPARSE:
            known = ", ".join((*KINDS, *SPARSE))
            raise ConfigError(f"{path}: its format is not known by the suffix {suffix!r}; expected one of {known}")
        kind, reason = _sparse_kind(path)
        return Sample(path, kind, reason, [])
    delimiter = _delimiter(path) if kind == "csv" else None
    rows = list(islice(_rows(path, kind, delimiter), ROWS_LOOKED_AT))
    if kind in TABLE_KINDS and not rows:
        raise ConfigError(f"{path} holds no rows: there is nothing to look at")
    return Sample(path, kind, f"the file ends in {suffix}", rows, delimiter)


def _rows(path: Path, kind: str, delimiter: str | None) -> Iterator[dict[str, Any]]:
    if kind == "parquet":
        for batch in pq.ParquetFile(path).iter_batches(ROWS_LOOKED_AT):
            yield from batch.to_pylist()
    elif kind == "jsonl":
        for number, line in enumerate(_lines(path), start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: not JSON ({error}); expected one object per line") from None
            if isinstance(row, dict):
                yield row
    elif kind == "csv":
        yield from csv.DictReader(_lines(path), delimiter=delimiter or ",")


def _lines(path: Path) -> Iterator[str]:
    with pa.input_stream(str(path), compression="detect") as stream:
        yield from io.TextIOWrapper(stream, "utf8", errors="replace", newline="")


def _delimiter(path: Path) -> str:
    header = next(_lines(path), "")
    return max((",", "\t", ";", "|"), key=header.count)


def _sparse_kind(path: Path) -> tuple[str, str]:
    first = next(_lines(path), "")
    if re.fullmatch(r"\s*\d+\s+\d+\s+\d+\s*", first):
        return "xmc", "its first line has three numbers: rows, features and labels"
    return "libsvm", "its first line is a row of labels and index:value pairs"
