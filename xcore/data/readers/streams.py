"""Text files, plain or compressed, as blocks of whole lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from xcore.errors import InputError, Place

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file: their bytes, and the number (from 1) of the first of them."""

    text: bytes
    first_line: int


def missing_file(path: Path) -> InputError:
    """The error for a path where there is no file."""
    return InputError(Place(str(path)), "missing file", "no file at this path", "a readable file", "Check the path.")


def damaged_file(path: Path, error: Exception, line: int | None = None) -> InputError:
    """The error for a file that cannot be read to its end."""
    return InputError(
        Place(str(path), line),
        "truncated or damaged file",
        str(error).splitlines()[0],
        f"a whole {COMPRESSION.get(path.suffix, 'plain')} file",
        "Copy or download the file again.",
    )


def line_blocks(path: Path, block_bytes: int) -> Iterator[LineBlock]:
    """Blocks of about `block_bytes` decompressed bytes, each cut after a line end; only the last may lack one.

    A line longer than the block makes its block longer. An empty file is an error, and so is a compressed file that
    stops in the middle.
    """
    tail, line, empty = b"", 1, True
    try:
        with pa.input_stream(str(path), compression=COMPRESSION.get(path.suffix)) as stream:
            while chunk := stream.read(block_bytes):
                if empty:
                    chunk, empty = chunk.removeprefix(BYTE_ORDER_MARK), False
                end = chunk.rfind(b"\n") + 1
                if end == 0:
                    tail += chunk
                    continue
                block, tail = LineBlock(b"".join((tail, memoryview(chunk)[:end])), line), chunk[end:]
                line += block.text.count(b"\n")
                yield block
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise damaged_file(path, error, line) from None
    if tail:
        yield LineBlock(tail, line)
    elif empty:
        raise InputError(Place(str(path)), "empty file", "0 bytes", "at least one row", "Leave the file out.")


def ordered_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Like `map`, on several threads: results come in order, and at most ``threads + 1`` items are under way."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
