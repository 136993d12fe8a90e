"""JSON lines: one object per row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from xcore.data.readers.cells import shown
from xcore.data.readers.streams import line_blocks
from xcore.data.readers.tables import CellColumns, RawRows, TableReader
from xcore.errors import InputError, Place


class JsonlReader(TableReader):
    """JSON lines with named values; blank lines are skipped."""

    kind: Literal["jsonl"] = "jsonl"

    def raw_rows(
        self, path: Path, columns: Mapping[str, str], block_bytes: int, optional: Collection[str] = ()
    ) -> Iterator[RawRows]:
        rows = CellColumns(str(path), columns, self.label_delimiter, None, optional)
        yield from rows.blocks(json_lines(path, block_bytes))


def json_lines(path: Path, block_bytes: int) -> Iterator[tuple[int, dict[str, Any] | InputError | None]]:
    """Each line's number, and its object or what is wrong with it; None after the last line of each block."""
    for block in line_blocks(path, block_bytes):
        for number, content in enumerate(block.text.split(b"\n"), block.first_line):
            if content and not content.isspace():
                yield number, _object(content, str(path), number)
        yield block.first_line, None


class _RepeatedKey(Exception):
    """A key that an object has twice: the parser would keep the last value and drop the others."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _RepeatedKey(shown(next(name for name, count in counts.items() if count > 1)))
    return found


def _object(content: bytes, file: str, line: int) -> dict[str, Any] | InputError:
    try:
        item = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as error:
        place = Place(file, line, error.start + 1)
        return InputError(
            place, "undecodable bytes", f"byte 0x{content[error.start]:02x}", "UTF-8", "Convert the file."
        )
    except json.JSONDecodeError as error:
        place = Place(file, line, error.colno)
        return InputError(place, "not JSON", error.msg, "one JSON object a line", "The line may be cut off.")
    except _RepeatedKey as error:
        return InputError(Place(file, line, field=str(error)), "repeated key", "the key twice", "each key once")
    except ValueError:
        return InputError(Place(file, line), "not a row", "a number of thousands of digits", "one JSON object a line")
    except RecursionError:
        return InputError(Place(file, line, 1), "not a row", "lists in lists without end", "one JSON object a line")
    return item if isinstance(item, dict) else InputError(
        Place(file, line, 1), "not a row", shown(item), "one JSON object a line"
    )  # fmt: skip
