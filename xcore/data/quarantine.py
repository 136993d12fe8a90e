"""Bad rows: stop at the first, or set them aside and count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xcore.errors import InputError

SCHEMA = pa.schema([(name, pa.string()) for name in ("split", "file")] + [("line", pa.int64())]
                   + [(name, pa.string()) for name in ("column", "problem", "found", "expected")])  # fmt: skip
EXAMPLES = 3
ROWS_AT_ONCE = 4096


class Quarantine:
    """Where bad rows go.

    Parameters
    ----------
    path : Path or None
        The table of bad rows, written as they come; None: the first bad row is raised.
    max_share : float
        `check` fails above this share of bad rows.
    """

    def __init__(self, path: Path | None, max_share: float) -> None:
        self._path, self._max_share = path, max_share
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[dict[str, Any]] = []
        self._examples: dict[str, list[str]] = {}
        self._first: InputError | None = None
        self.reasons: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many rows are bad so far."""
        return self.reasons.total()

    def add(self, split: str, error: InputError) -> None:
        """Set one bad row aside, or raise."""
        if self._path is None:
            raise error
        self._first = self._first or error
        self.reasons[error.problem] += 1
        examples = self._examples.setdefault(error.problem, [])
        if len(examples) < EXAMPLES:
            examples.append(str(error))
        place = error.place
        column = place.field if place.field is not None else None if place.column is None else str(place.column)
        self._waiting.append({
            "split": split, "file": place.file, "line": place.line, "column": column,
            "problem": error.problem, "found": error.found, "expected": error.expected,
        })  # fmt: skip
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    def check(self, rows_read: int) -> None:
        """Fail if too large a share of the rows read is bad."""
        if self._first is None or self.count <= self._max_share * rows_read:
            return
        raise InputError(
            self._first.place,
            "too many bad rows",
            f"{self.count} of {rows_read} rows, the first because of {self._first.problem}: {self._first.found}",
            f"at most a share of {self._max_share}",
            "Correct the files, or raise max_bad_share if losing these rows is right.",
        )

    def close(self) -> None:
        """Write what is left; no file is written where no row is bad."""
        if self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def counts(self) -> dict[str, Any]:
        """Rows set aside, by reason, with the first examples."""
        reasons = {
            problem: {"rows": rows, "first": self._examples[problem]} for problem, rows in sorted(self.reasons.items())
        }
        return {"rows": self.count, "reasons": reasons}

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(self._waiting, SCHEMA))
        self._waiting = []
