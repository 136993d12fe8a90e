"""What Parquet, JSONL and CSV share: named columns, and the checks on their cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from xcore.data.readers.base import EVERYTHING, LABEL_NAMES, Block, Form, Part, Reader, Shape, Wanted
from xcore.data.readers.cells import BadCell, group_of, id_of, labels_of, rebuilt, text_of, vector_of
from xcore.errors import InputError, Place
from xcore.numeric.matrices import Int64, list_parts

CELL_TYPES = {
    "text": pa.string(),
    "vector": pa.list_(pa.float64()),
    "labels": LABEL_NAMES,
    "id": pa.string(),
    "group": pa.string(),
}


@dataclass(frozen=True)
class RawRows:
    """Rows of a table with the columns that were asked for, by role (see CELL_TYPES); their values are not checked."""

    lines: Int64
    columns: dict[str, pa.Array]
    bad: dict[int, InputError] = field(default_factory=dict)


class TableReader(Reader):
    """Tables with named columns: a text or a vector, the labels, and optionally a row id and a group."""

    text: str | None = Field(None, description="Column with the text. Give either this or a vector column.")
    vector: str | None = Field(
        None, description="Column with the feature vector. All rows must have vectors of the same length."
    )
    labels: str = Field("labels", description="Column with the labels.")
    id: str | None = Field(
        None, title="Row id", description="Column with the row ids. Empty: rows are numbered from 0."
    )
    group: str | None = Field(
        None,
        description="Column with the group of each row. If it is set, train rows learn from the labels of "
        "their groups. Dev and test files do not need the column.",
    )
    label_delimiter: str | None = Field(
        None,
        min_length=1,
        description="Text between two labels, if the labels of a row are one string. Empty: the labels are lists.",
    )

    @model_validator(mode="after")
    def _one_feature_column(self) -> Self:
        if (self.text is None) == (self.vector is None):
            raise ValueError("name the text column or the vector column, one of the two")
        return self

    @property
    def form(self) -> Form:
        return "text" if self.text is not None else "vector"

    @property
    def groups_rows(self) -> bool:
        return self.group is not None

    def raw_rows(
        self, path: Path, columns: Mapping[str, str], block_bytes: int, optional: Collection[str] = ()
    ) -> Iterator[RawRows]:
        """The columns (role -> name) of a file, block by block; columns with a role in `optional` may be missing."""
        raise TypeError(f"{type(self).__name__} has no raw_rows")

    def columns(self) -> dict[str, str]:
        """The columns to read, role -> name."""
        named = {"text": self.text, "vector": self.vector, "id": self.id, "group": self.group, "labels": self.labels}
        return {role: name for role, name in named.items() if name is not None}

    def column_name(self, role: str) -> str:
        return self.columns()[role]

    def shape(self, parts: Sequence[Part]) -> Shape:
        if self.vector is None:
            return Shape()
        for part in parts:
            for rows in self.raw_rows(Path(str(part)), {"vector": self.vector}, 1 << 16):
                lengths = pc.list_value_length(rows.columns["vector"]).drop_null()
                if len(lengths):
                    return Shape(n_features=self._width(str(part), lengths[0].as_py()))
        raise InputError(Place(str(parts[0]), field=self.vector), "no vectors", "only nulls", "lists of numbers")

    def _width(self, file: str, n: int) -> int:
        if n == 0:
            raise InputError(Place(file, field=self.vector), "no vectors", "a list without numbers", "lists of numbers")
        return n

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        path, unread = Path(str(part)), set()
        if not wanted.labels:
            unread.add("labels")
        if wanted.groups == "no":
            unread.add("group")
        columns = {role: name for role, name in self.columns().items() if role not in unread}
        optional = {"group"} if wanted.groups == "optional" else set()
        for raw in self.raw_rows(path, columns, block_bytes, optional):
            if len(raw.lines):
                block = self._checked(str(path), raw, shape)
                # Files of one split may differ in whether they have an optional column; their blocks must not.
                lacking = [role for role in columns.keys() & optional if role not in raw.columns]
                yield block if not lacking else _with_nulls(block, lacking)

    def _checked(self, file: str, raw: RawRows, shape: Shape) -> Block:
        """The rows as a block, with what is wrong with their cells."""
        columns, bad, names = dict(raw.columns), dict(raw.bad), self.columns()
        n = len(raw.lines)

        def judge(role: str, rows: npt.NDArray[Any], error: BadCell) -> None:
            for row in rows.tolist():
                place = Place(file, int(raw.lines[row]), field=names[role])
                bad.setdefault(row, InputError(place, error.problem, error.found, error.expected, error.fix))

        if "labels" not in columns:
            columns["labels"] = rebuilt(np.zeros(n, np.int64), pa.array([], pa.string()))
        judge("labels", _nulls(columns["labels"]), BadCell("no label list", "null", "a list, which may be empty"))
        offsets, flat = list_parts(pa.chunked_array([columns["labels"]]))
        judge("labels", _rows_of(offsets, _missing(flat)), BadCell("missing label", "an empty label", "a label id"))
        if "id" in columns:
            judge("id", np.flatnonzero(_missing(columns["id"].to_numpy(zero_copy_only=False))),
                  BadCell("missing row id", "nothing", "an id"))  # fmt: skip
            columns["id"] = pc.fill_null(columns["id"], "")
        if "text" in columns:
            columns["text"] = pc.fill_null(columns["text"], "")
        if "vector" in columns:
            columns["vector"] = _vectors(columns["vector"], shape.n_features or 0, judge)
        if "labels" in columns:
            columns["labels"] = pc.fill_null(columns["labels"], pa.scalar([], LABEL_NAMES))
        return Block(file, pa.record_batch({"line": raw.lines} | columns), bad)


def _with_nulls(block: Block, roles: list[str]) -> Block:
    rows = block.rows
    for role in roles:
        rows = rows.append_column(role, pa.nulls(rows.num_rows, CELL_TYPES[role]))
    return Block(block.file, rows, block.bad)


def _vectors(column: pa.ListArray, width: int, judge: Any) -> pa.FixedSizeListArray:
    """Checked vectors; a bad row's vector is zero."""
    judge("vector", _nulls(column), BadCell("row with no features", "null", f"a vector of {width} numbers"))
    lengths = np.diff(list_parts(pa.chunked_array([column]))[0])
    for length in np.unique(lengths[lengths != width]).tolist():
        rows = np.flatnonzero((lengths == length) & column.is_valid().to_numpy(zero_copy_only=False))
        judge("vector", rows, BadCell("wrong length", f"{length} numbers", f"{width}, as in the first row"))
    dense = np.zeros((len(column), width), np.float32)
    right = lengths == width
    with np.errstate(over="ignore"):
        flat = column.filter(pa.array(right)).flatten().to_numpy(zero_copy_only=False)
        dense[right] = flat.reshape(-1, width).astype(np.float32)
    judge("vector", np.flatnonzero(np.isnan(dense).any(axis=1)), BadCell("NaN value", "NaN or null", "a finite number"))
    infinite = np.flatnonzero(np.isinf(dense).any(axis=1))
    judge("vector", infinite, BadCell("infinite value", "an infinite number", "a number that fits a float32"))
    return pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), width)


def _nulls(column: pa.Array) -> Int64:
    return np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))


def _missing(texts: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where there is no text or an empty one."""
    return np.array([text is None or text == "" for text in texts], np.bool_)


def _rows_of(offsets: Int64, marked: npt.NDArray[np.bool_]) -> Int64:
    """The lists in which any value is marked."""
    return np.unique(np.searchsorted(offsets, np.flatnonzero(marked), side="right") - 1)


class CellColumns:
    """Columns built row by row from Python cells, for formats that a general parser reads.

    A cell that a row lacks is an error, but for roles in `optional`, where it is null.
    """

    def __init__(
        self,
        file: str,
        columns: Mapping[str, str],
        label_delimiter: str | None,
        vector_delimiter: str | None,
        optional: Collection[str] = (),
    ):
        self._file, self._names, self._optional = file, columns, optional
        self._convert = {
            "text": text_of,
            "vector": lambda cell: vector_of(cell, vector_delimiter),
            "labels": lambda cell: labels_of(cell, label_delimiter),
            "id": id_of,
            "group": group_of,
        }
        self._clear()

    def _clear(self) -> None:
        self._lines: list[int] = []
        self._cells: dict[str, list[Any]] = {role: [] for role in self._names}
        self._bad: dict[int, InputError] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: int, cells: Mapping[str, Any]) -> None:
        """One row, its cells by column name."""
        for role, name in self._names.items():
            try:
                if name not in cells and role not in self._optional:
                    raise BadCell("missing cell", "nothing", f"a value for '{name}'")
                value = self._convert[role](cells[name]) if name in cells else None
            except BadCell as error:
                place = Place(self._file, line, field=name)
                self._bad.setdefault(
                    len(self), InputError(place, error.problem, error.found, error.expected, error.fix)
                )
                value = None
            self._cells[role].append(value)
        self._lines.append(line)

    def add_bad(self, line: int, error: InputError) -> None:
        """A row without any readable cell."""
        self._bad[len(self)] = error
        self._lines.append(line)
        for cells in self._cells.values():
            cells.append(None)

    def blocks(self, records: Iterable[tuple[int, Mapping[str, Any] | InputError | None]]) -> Iterator[RawRows]:
        """The rows of records (line, and cells or what is wrong with them); None stands at the end of each block."""
        for line, cells in records:
            if cells is None:
                yield self._take()
            elif isinstance(cells, InputError):
                self.add_bad(line, cells)
            else:
                self.add(line, cells)

    def _take(self) -> RawRows:
        """The rows added since the last call."""
        columns = {role: pa.array(cells, CELL_TYPES[role]) for role, cells in self._cells.items()}
        rows = RawRows(np.array(self._lines, np.int64), columns, self._bad)
        self._clear()
        return rows
