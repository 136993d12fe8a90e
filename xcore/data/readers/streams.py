"""Text files, plain or compressed, as blocks of whole lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from xcore.errors import InputError, Place
from xcore.files import problem_with_file

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST_LINE = 64 << 20  # bytes; longer than any row, and short enough to be held several times
MOST_LINES = 1 << 17  # of a block: each of them may need a message of its own
MOST_EXPANSION, EXPANSION_FROM = 200, 1 << 30  # real data is packed 3 to 20 times smaller, a bomb 1,000 times

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file: their bytes, and the number (from 1) of the first of them."""

    text: bytes
    first_line: int


def need_file(path: Path) -> None:
    """Raise an error unless there is a plain, readable file: a folder cannot be read, and a pipe waits for ever."""
    if problem := problem_with_file(path):
        what = "missing file" if problem == "no file at this path" else "not a readable file"
        raise InputError(Place(str(path)), what, problem, "a readable file", "Check the path.")


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

    A line longer than the block makes its block longer, up to LONGEST_LINE; a block has at most MOST_LINES. An empty
    file is an error, and so is a compressed file that stops in the middle.
    """
    line, pieces, length, empty = 1, list[bytes](), 0, True
    try:
        for content in chunks(path, block_bytes):
            chunk = content.removeprefix(BYTE_ORDER_MARK) if empty else content
            empty = empty and not chunk
            end = chunk.rfind(b"\n") + 1
            if end:
                for text in _limited(b"".join((*pieces, memoryview(chunk)[:end]))):
                    yield LineBlock(text, line)
                    line += text.count(b"\n")
                pieces, length = [], 0
            pieces.append(chunk[end:])  # joined once: adding piece to piece would copy a long line again and again
            length += len(pieces[-1])
            if length > LONGEST_LINE:
                found = f"more than {LONGEST_LINE:,} bytes without a line end"
                fix = "The file may be damaged, or of another format."
                raise InputError(Place(str(path)), "line too long", found, "rows", fix)
    except InputError as error:
        place = error.place if problem_with_file(path) else Place(error.place.file, line)
        raise InputError(place, error.problem, error.found, error.expected, error.fix) from None
    if length:
        yield LineBlock(b"".join(pieces), line)
    elif empty:
        raise InputError(Place(str(path)), "empty file", "0 bytes", "at least one row", "Leave the file out.")


def chunks(path: Path, size: int) -> Iterator[bytes]:
    """The decompressed bytes of a file, `size` at a time; refuses a file that unpacks to far more than data does."""
    with opened_stream(path) as stream:
        most = max(EXPANSION_FROM, MOST_EXPANSION * path.stat().st_size) if path.suffix in COMPRESSION else None
        seen = 0
        while chunk := stream_bytes(path, stream, size):
            seen += len(chunk)
            if most is not None and seen > most:
                raise InputError(
                    Place(str(path)),
                    "suspicious compression",
                    f"more than {most:,} bytes from {path.stat().st_size:,}",
                    f"at most {MOST_EXPANSION} times the size of the file",
                    "Unpack the file if it is really so large.",
                )
            yield chunk


def opened_stream(path: Path) -> Any:
    """An open file, decompressed as its name says."""
    need_file(path)
    try:
        return pa.input_stream(str(path), compression=COMPRESSION.get(path.suffix))
    except (OSError, pa.ArrowException) as error:
        raise damaged_file(path, error) from None


def stream_bytes(path: Path, stream: Any, size: int, line: int | None = None) -> bytes:
    """The next `size` bytes, or fewer at the end. Memory follows what is there, not what is asked for."""
    pieces, missing = list[bytes](), size
    try:
        while missing > 0 and (piece := stream.read(min(missing, LONGEST_LINE))):
            pieces.append(piece)
            missing -= len(piece)
    except (OSError, pa.ArrowException) as error:
        raise damaged_file(path, error, line) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def first_line(path: Path, most: int) -> bytes | None:
    """The first line without its end, read in no more than `most` bytes; None if it is longer."""
    with opened_stream(path) as stream:
        head = stream_bytes(path, stream, most + len(BYTE_ORDER_MARK), line=1).removeprefix(BYTE_ORDER_MARK)
    if not head:
        raise InputError(Place(str(path)), "empty file", "0 bytes", "at least one row", "Leave the file out.")
    line, _, _ = head.partition(b"\n")
    return line if len(line) < most else None


def _limited(text: bytes) -> Iterator[bytes]:
    """Whole lines in pieces of at most MOST_LINES."""
    if text.count(b"\n") <= MOST_LINES:
        yield text
        return
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))[MOST_LINES - 1 :: MOST_LINES] + 1
    start = 0
    for end in [*ends.tolist(), len(text)]:
        if end > start:
            yield text[start:end]
        start = end


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
