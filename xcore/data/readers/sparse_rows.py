"""Sparse rows between the parsers and the blocks that readers give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from xcore.data.readers.base import INT32_MAX, Block
from xcore.errors import InputError
from xcore.numeric.matrices import Float32, Int32, Int64


@dataclass(frozen=True)
class Lines:
    """Parsed lines; what stands in the lists of a bad line has no meaning.

    Attributes
    ----------
    lines : int64 (n,)
        Line numbers.
    label_offsets, labels : int64 (n + 1,), int32
        The label list of each line, ascending; a label may stand twice.
    offsets, indices, values : int64 (n + 1,), int32, float32
        The features of each line, by ascending id, counted from the grammar's first id.
    bad : dict
        Position -> error.
    """

    lines: Int64
    label_offsets: Int64
    labels: Int32
    offsets: Int64
    indices: Int32
    values: Float32
    bad: dict[int, InputError]


def list_array(offsets: Int64, values: npt.NDArray[Any]) -> pa.ListArray:
    """A list column over the given flat values, not copied."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def sort_lists(offsets: Int64, ids: Int32, data: npt.NDArray[Any]) -> Int64:
    """Sort each list of ids in place, `data` along with it; returns the rows in which an id stands twice."""
    matrix = sp.csr_array((len(offsets) - 1, INT32_MAX), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, ids, offsets.astype(np.int32)
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    return repeats(offsets, ids)


def repeats(offsets: Int64, ids: npt.NDArray[Any]) -> Int64:
    """The rows of sorted lists in which an id stands twice."""
    twice = np.flatnonzero(ids[1:] == ids[:-1]) + 1
    rows = np.searchsorted(offsets, twice, side="right") - 1
    return np.unique(rows[offsets[rows] < twice])  # the last of one row may be the first of the next


def without_zeros(offsets: Int64, ids: Int32, values: Float32) -> tuple[Int64, Int32]:
    """Offsets and ids of the non-zero entries."""
    kept = values != 0
    if kept.all():
        return offsets, ids
    return np.concatenate([[0], np.cumsum(kept)])[offsets].astype(np.int64), ids[kept]


def features_block(file: str, lines: Int64, offsets: Int64, indices: Int32, values: Float32) -> Block:
    """A block of rows without labels."""
    columns = {"line": lines, "indices": list_array(offsets, indices), "values": list_array(offsets, values)}
    return Block(file, pa.record_batch(columns))


def with_labels(block: Block, labels: pa.ListArray) -> Block:
    """The block with a label list for each of its rows."""
    return Block(block.file, block.rows.append_column("labels", labels), block.bad)


def block_of_lines(file: str, lines: Lines) -> Block:
    """Parsed lines as a block with features and labels."""
    block = features_block(file, lines.lines, lines.offsets, lines.indices, lines.values)
    block.bad.update(lines.bad)
    return with_labels(block, list_array(lines.label_offsets, lines.labels))


def part_of(block: Block, start: int, stop: int) -> Block:
    """Rows `start` to `stop` of a block, not copied."""
    bad = {row - start: error for row, error in block.bad.items() if start <= row < stop}
    return Block(block.file, block.rows.slice(start, stop - start), bad)


def in_step(left: Iterator[Block], right: Iterator[Block]) -> Iterator[tuple[Block, Block]]:
    """Two files with the same rows, cut into pieces that hold the same rows; both are read to their ends."""
    first, second = next(left, None), next(right, None)
    while first is not None and second is not None:
        n = min(first.rows.num_rows, second.rows.num_rows)
        yield part_of(first, 0, n), part_of(second, 0, n)
        first = part_of(first, n, first.rows.num_rows) if first.rows.num_rows > n else next(left, None)
        second = part_of(second, n, second.rows.num_rows) if second.rows.num_rows > n else next(right, None)
    for rest in (left, right):  # each file checks its own row count at its end
        for _ in rest:
            pass
