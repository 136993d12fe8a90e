"""First pass: all rows of a split, checked, with provisional label numbers, into one Arrow file on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xcore.data.feature_files import COLUMNS
from xcore.data.fingerprints import Prints, fingerprints
from xcore.data.label_index import UNKNOWN, LabelIndex, label_of
from xcore.data.quarantine import Quarantine
from xcore.data.readers.base import Block, Part, Reader, Shape, Split, Wanted
from xcore.data.readers.sparse_rows import list_array, repeats, sort_lists
from xcore.errors import InputError, Place
from xcore.numeric.matrices import Int32, Int64, list_parts


@dataclass(frozen=True)
class StagedSplit:
    """The rows of one split after the first pass.

    Attributes
    ----------
    rows, rows_read : int
        Rows that are in order, and rows there were.
    content, ids : uint64 (rows,)
        Fingerprints; None where rows have no ids of their own.
    lowest_index, highest_index, highest_label : int
        Of what was seen; -1 where nothing was.
    has_groups : bool
        Whether there is a ``group`` column; it may be null in some rows or in all.
    repeated_labels : int
        Labels that stood twice on a row, and were dropped.
    """

    split: Split
    path: Path
    files: list[str]
    rows: int
    rows_read: int
    content: Prints
    ids: Prints | None
    lowest_index: int
    highest_index: int
    highest_label: int
    has_groups: bool
    repeated_labels: int

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The staged rows in order; only some columns are read from disk if asked so."""
        with pa.OSFile(str(self.path)) as file:
            schema = pa.ipc.open_file(file).schema
            fields = None if columns is None else sorted(schema.get_field_index(name) for name in columns)
            reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def column(self, name: str, kept: Int64) -> pa.ChunkedArray:
        """One whole column, at the positions `kept` (ascending)."""
        chunks, start = [], 0
        for batch in self.batches([name]):
            own = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + batch.num_rows)] - start
            chunks.append(batch.column(0).take(pa.array(own)))
            start += batch.num_rows
        return pa.chunked_array(chunks)

    def places(self, positions: Int64, field: str | None = None) -> list[Place]:
        """Where staged rows (ascending positions) stood in their files."""
        lines, files = (self.column(name, positions).to_pylist() for name in ("line", "file"))
        return [Place(self.files[file], line, field=field) for file, line in zip(files, lines, strict=True)]


@dataclass(frozen=True)
class Checks:
    """What the first pass needs to check a row."""

    reader: Reader
    index: LabelIndex
    quarantine: Quarantine
    known_groups: set[str] | None
    empty_rows_are_bad: bool
    repeated_labels_are_bad: bool


def stage_split(
    split: Split,
    parts: list[Part],
    shape: Shape,
    checks: Checks,
    path: Path,
    block_bytes: int,
    wanted: Wanted,
    progress: Callable[[int], None],
) -> StagedSplit:
    """Read all parts of a split; memory is bounded by a few blocks, plus 16 bytes per row for the fingerprints."""
    reader, files = checks.reader, list[str]()
    content, ids, low, high, label = [], [], [], [-1], [-1]
    rows_read, repeated, has_groups, writer = 0, 0, False, None
    try:
        for part in parts:
            for block in reader.blocks(part, shape, block_bytes, wanted):
                if block.file not in files:
                    files.append(block.file)
                rows, dropped = _checked(split, block, checks, rows_read, len(files) - 1)
                rows_read, repeated = rows_read + block.rows.num_rows, repeated + dropped
                has_groups = has_groups or "group" in rows.schema.names
                writer = writer or pa.ipc.new_file(str(path), rows.schema)
                writer.write_batch(rows)
                content.append(fingerprints(rows, COLUMNS[reader.form]))
                if "id" in rows.schema.names:
                    ids.append(fingerprints(rows, ["id"]))
                if reader.form == "sparse":
                    used = list_parts(pa.chunked_array([rows.column("indices")]))[1]
                    low.append(int(used.min(initial=2**31 - 1)))
                    high.append(int(used.max(initial=-1)))
                label.append(int(list_parts(pa.chunked_array([rows.column("labels")]))[1].max(initial=-1)))
                progress(block.rows.num_rows)
    finally:
        if writer is not None:
            writer.close()
    if rows_read == 0:
        raise InputError(Place(str(parts[0])), "empty file", "no rows", "at least one row", "Leave the file out.")
    return StagedSplit(
        split, path, files, sum(map(len, content)), rows_read, np.concatenate(content),
        np.concatenate(ids) if ids else None, min(low, default=-1), max(high), max(label),
        has_groups, repeated,
    )  # fmt: skip


def _checked(split: Split, block: Block, checks: Checks, first_row: int, file: int) -> tuple[pa.RecordBatch, int]:
    """The good rows of a block, ready to be staged, and how many labels stood twice; bad rows go to the quarantine."""
    rows, bad = block.rows, dict(block.bad)
    if checks.empty_rows_are_bad:
        _find_empty(block, checks.reader, bad)
    if checks.known_groups is not None and "group" in rows.schema.names:
        _find_unknown_groups(block, checks.reader, checks.known_groups, bad)
    labels, repeated = _encode_labels(block, checks, bad)
    for position in sorted(bad):
        checks.quarantine.add(split, bad[position])
    number = np.arange(first_row, first_row + rows.num_rows, dtype=np.int64)
    columns = {name: rows.column(name) for name in rows.schema.names if name != "labels"}
    columns |= {"row": number, "file": np.full(rows.num_rows, file, np.int32), "labels": labels}
    batch = pa.record_batch(columns)
    good = np.ones(rows.num_rows, np.bool_)
    good[list(bad)] = False
    return batch.filter(pa.array(good)) if bad else batch, int(repeated[good].sum())


def _find_empty(block: Block, reader: Reader, bad: dict[int, InputError]) -> None:
    """Mark rows without any feature."""
    if "indices" in block.rows.schema.names:
        empty, found, field = pc.equal(pc.list_value_length(block.rows.column("indices")), 0), "no features", None
    elif "text" in block.rows.schema.names:
        text = block.rows.column("text")
        empty, found = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(text)), 0), "an empty text"
        field = reader.column_name("text")
    else:
        return
    for position in np.flatnonzero(empty.to_numpy(zero_copy_only=False)).tolist():
        place = Place(block.file, block.rows.column("line")[position].as_py(), field=field)
        error = InputError(place, "row with no features", found, "at least one", "Or set empty_rows: keep.")
        bad.setdefault(position, error)


def _find_unknown_groups(block: Block, reader: Reader, known: set[str], bad: dict[int, InputError]) -> None:
    """Mark rows as bad if their group is not in the groups file."""
    for position, group in enumerate(block.rows.column("group").to_pylist()):
        if group is not None and group not in known:
            place = Place(block.file, block.rows.column("line")[position].as_py(), field=reader.column_name("group"))
            bad.setdefault(position, InputError(place, "unknown group", repr(group), "a group of the groups file"))


def _encode_labels(block: Block, checks: Checks, bad: dict[int, InputError]) -> tuple[pa.ListArray, Int64]:
    """Label lists as ascending (provisional) numbers, each once, and how many repeats each row had.

    Unknown labels make their rows bad, and so do repeated ones if asked for.
    """
    column = block.rows.column("labels")
    offsets, _ = list_parts(pa.chunked_array([column]))
    flat = column.flatten()
    numbers = checks.index.encode(flat)

    def mark(row: int, problem: str, label: str, expected: str, fix: str) -> None:
        line, field = block.rows.column("line")[row].as_py(), checks.reader.column_name("labels")
        place = Place(block.labels_file or block.file, line, field=field)
        bad.setdefault(row, InputError(place, problem, label, expected, fix))

    unknown = np.flatnonzero(numbers == UNKNOWN)
    for position, row in zip(
        unknown.tolist(), (np.searchsorted(offsets, unknown, side="right") - 1).tolist(), strict=True
    ):
        mark(row, "unknown label", label_of(flat, position), "a label of the label table", "Add it to the table.")
    given = numbers.copy()
    sort_lists(offsets, numbers, np.zeros(len(numbers), np.int8))
    rows = repeats(offsets, numbers)
    if not len(rows):
        return list_array(offsets, numbers), np.zeros(len(column), np.int64)
    for row in rows.tolist() if checks.repeated_labels_are_bad else ():
        own = given[offsets[row] : offsets[row + 1]]
        twice = next(at for at in range(len(own)) if own[at] in own[:at])
        label = label_of(flat, int(offsets[row]) + twice)
        mark(row, "repeated label id", label, "each label once per row", "Or set repeated_labels: drop.")
    return _each_once(offsets, numbers)


def _each_once(offsets: Int64, numbers: Int32) -> tuple[pa.ListArray, Int64]:
    """Sorted lists without repeats, and how many each list had."""
    first = np.ones(len(numbers), np.bool_)
    first[1:] = numbers[1:] != numbers[:-1]
    first[offsets[:-1][np.diff(offsets) > 0]] = True  # the last of one row may be the first of the next
    kept = np.concatenate([[0], np.cumsum(first)])[offsets]
    return list_array(kept, numbers[first]), np.diff(offsets) - np.diff(kept)
