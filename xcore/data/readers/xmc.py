"""The XMC repository's single file: a header ``N D L``, then ``label,label feature:value feature:value`` a row."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from xcore.data.readers.base import EVERYTHING, INT32_MAX, Block, Form, Part, Reader, Shape, Wanted, agreed
from xcore.data.readers.numerals import whole
from xcore.data.readers.sparse_errors import Grammar
from xcore.data.readers.sparse_rows import Lines, block_of_lines
from xcore.data.readers.streams import LineBlock, first_line, line_blocks, ordered_map
from xcore.errors import InputError, Place

HEADER_BYTES = 1 << 12


def parsed(blocks: Iterator[LineBlock], file: str, grammar: Grammar) -> Iterator[Lines]:
    """The lines of each block, parsed on as many threads as there are cores, up to four: then writing is slower."""
    from xcore.data.readers.sparse_text import parse_lines

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ordered_map(partial(parse_lines, file=file, grammar=grammar), blocks, min(4, cores))


def read_header(path: Path, meaning: str) -> tuple[int, ...]:
    """The whole numbers on the first line, as many as `meaning` has words."""
    line = first_line(path, HEADER_BYTES)
    first = (line or b"").decode("utf-8", "backslashreplace").strip(" \t\r")
    numbers = [whole(word) for word in re.split("[ \t]+", first)]
    known = [number for number in numbers if number is not None and number <= INT32_MAX]
    if len(numbers) != len(known) or len(known) != len(meaning.split()):
        raise InputError(
            Place(str(path), 1, 1),
            "not a header",
            repr(first[:60]) if line is not None else f"a line of {HEADER_BYTES:,} bytes or more",
            f"whole numbers {meaning}, none above {INT32_MAX:,}",
            "A file without a header is for the libsvm reader.",
        )
    return tuple(known)


def body_blocks(path: Path, block_bytes: int) -> Iterator[LineBlock]:
    """The lines after the header."""
    blocks = line_blocks(path, block_bytes)
    first = next(blocks)
    body = first.text.partition(b"\n")[2]
    return chain([LineBlock(body, first.first_line + 1)] if body else [], blocks)


def counted_lines(path: Path, n_rows: int, grammar: Grammar, block_bytes: int) -> Iterator[Lines]:
    """The parsed lines after the header, which must be as many as the header says; blank lines at the end are none."""
    file, rows = str(path), 0
    for lines in parsed(body_blocks(path, block_bytes), file, grammar):
        kept = min(len(lines.lines), n_rows - rows)
        if not _blank_from(lines, kept):
            raise InputError(
                Place(file, int(lines.lines[kept])),
                "wrong count in the header",
                "one row more",
                f"{n_rows} rows, as the first line says",
                "Correct the header or remove the rows.",
            )
        rows += kept
        if kept:
            yield _head(lines, kept)
    if rows < n_rows:
        raise InputError(
            Place(file, rows + 2),
            "truncated file, or wrong count in the header",
            f"the end of the file after {rows} rows",
            f"{n_rows} rows, as the first line says",
            "Copy the file again, or correct the header.",
        )


def _blank_from(lines: Lines, row: int) -> bool:
    more = len(lines.labels) > lines.label_offsets[row] or len(lines.indices) > lines.offsets[row]
    return not (more or any(bad >= row for bad in lines.bad))


def _head(lines: Lines, rows: int) -> Lines:
    if rows == len(lines.lines):
        return lines
    return Lines(
        lines.lines[:rows],
        lines.label_offsets[: rows + 1],
        lines.labels,
        lines.offsets[: rows + 1],
        lines.indices,
        lines.values,
        lines.bad,
    )


class XmcReader(Reader):
    """XMC repository, single file: a header ``N D L``, then labels and features on one line; ids start at 0."""

    integer_labels: ClassVar[bool] = True
    kind: Literal["xmc"] = "xmc"

    @property
    def form(self) -> Form:
        return "sparse"

    def shape(self, parts: Sequence[Part]) -> Shape:
        headers = [(str(part), read_header(Path(str(part)), "rows features labels")) for part in parts]
        return Shape(
            n_features=agreed("features", [(file, header[1]) for file, header in headers]),
            n_labels=agreed("labels", [(file, header[2]) for file, header in headers]),
        )

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        path = Path(str(part))
        n_rows, n_features, n_labels = read_header(path, "rows features labels")
        grammar = Grammar(last_feature=n_features - 1, last_label=n_labels - 1)
        for lines in counted_lines(path, n_rows, grammar, block_bytes):
            yield block_of_lines(str(path), lines)
