"""Rows that are the same: by id, which is an error, or by content, which real data has."""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.numeric.matrices import Int64, list_parts

Prints: TypeAlias = npt.NDArray[np.uint64]


@numba.njit(cache=True, nogil=True)
def _mix(content: npt.NDArray[np.uint8], offsets: Int64, prints: Prints) -> None:
    """FNV-1a over each row's bytes, going on from what `prints` holds, then spread over all bits."""
    prime, spread = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
    for row in range(len(prints)):
        state = prints[row] ^ np.uint64(0xCBF29CE484222325)
        for at in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(content[at])) * prime
        state = (state ^ (state >> np.uint64(32))) * spread
        prints[row] = state ^ (state >> np.uint64(29))


def fingerprints(rows: pa.RecordBatch, columns: list[str]) -> Prints:
    """64 bits of each row's content in some columns (lists of numbers, texts, or bytes). Cost O(bytes)."""
    prints = np.zeros(rows.num_rows, np.uint64)
    for name in columns:
        offsets, content = _bytes_of(rows.column(name))
        _mix(content, offsets, prints)
    return prints


def _bytes_of(column: pa.Array) -> tuple[Int64, npt.NDArray[np.uint8]]:
    """Where each row's bytes begin and end, and the bytes."""
    if pa.types.is_fixed_size_list(column.type):
        values: npt.NDArray[Any] = column.flatten().to_numpy()
        return np.arange(len(column) + 1) * column.type.list_size * values.itemsize, values.view(np.uint8)
    if pa.types.is_fixed_size_binary(column.type):
        size = column.type.byte_width
        content = np.frombuffer(column.buffers()[1], np.uint8, len(column) * size, column.offset * size)
        return np.arange(len(column) + 1) * size, content
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
        _, offsets, content = column.buffers()
        own = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        return own, np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    starts, values = list_parts(pa.chunked_array([column]))
    return starts * values.itemsize, np.ascontiguousarray(values).view(np.uint8)


def later_of_same(prints: Prints) -> tuple[Int64, Int64]:
    """Positions of repeated fingerprints, ascending, and the first position of each. Cost O(n log n)."""
    _, first, inverse = np.unique(prints, return_index=True, return_inverse=True)
    before = first[inverse]
    later = np.flatnonzero(before != np.arange(len(prints)))
    return later, before[later]
