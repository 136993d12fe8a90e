"""Cells of a table: from what people write to text, labels, vectors and ids, or a word on what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from xcore.data.readers.numerals import decimal


@dataclass(frozen=True)
class BadCell(Exception):
    """A cell that is not what its column should hold."""

    problem: str
    found: str
    expected: str
    fix: str = ""


_BLANKS = re.compile("[ \t\r\n]+")
LARGEST_ID = 2**64
NEEDS_DELIMITER = "Set the reader's label_delimiter to the characters between two labels."


def shown(cell: Any) -> str:
    """A cell in a message: short, and with its type visible."""
    try:
        text = repr(cell)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def checked_text(text: str) -> str:
    """A text without NUL, which ends a text in many programs, and without halves of characters."""
    if "\0" in text:
        raise BadCell("NUL character", shown(text), "a text without NUL", "The file may be damaged or binary.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadCell("lone surrogate", ascii(error.object[error.start]), "whole Unicode characters") from None
    return text


def text_of(cell: Any) -> str:
    """A text cell; null is the empty text."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        raise BadCell("wrong type", shown(cell), "a text")
    return checked_text(cell)


def id_of(cell: Any) -> str:
    """An id cell: a text that is not empty, or a whole number."""
    if isinstance(cell, bool) or not isinstance(cell, str | int) or cell == "":
        raise BadCell("missing or wrong id", shown(cell), "a text that is not empty, or a whole number")
    if isinstance(cell, int) and abs(cell) > LARGEST_ID:
        raise BadCell("missing or wrong id", shown(cell), "a whole number of 64 bits; longer ids are texts")
    return checked_text(str(cell))


def group_of(cell: Any) -> str | None:
    """A group cell: an id, or nothing where the row is in no group."""
    return None if cell is None or cell == "" else id_of(cell)


def labels_of(cell: Any, delimiter: str | None) -> list[str]:
    """A label cell: a list of ids, or one string of ids separated by `delimiter`; there, a number is one id."""
    if isinstance(cell, int) and not isinstance(cell, bool) and delimiter is not None:
        return [id_of(cell)]
    if isinstance(cell, str):
        if delimiter is None:
            raise BadCell("labels are one text", shown(cell), "a list of labels", NEEDS_DELIMITER)
        return [piece.strip() for piece in checked_text(cell).split(delimiter) if piece.strip()]
    if not isinstance(cell, list):
        raise BadCell("wrong type", shown(cell), "a list of labels")
    try:
        return [id_of(label) for label in cell]
    except BadCell as error:
        problem = "missing or wrong label" if error.problem == "missing or wrong id" else error.problem
        raise BadCell(problem, error.found, error.expected, error.fix) from None


def vector_of(cell: Any, delimiter: str | None) -> list[float]:
    """A vector cell: a list of numbers, or one string of numbers separated by `delimiter` or white space."""
    pieces = _pieces(cell, delimiter) if isinstance(cell, str) else cell
    if not isinstance(pieces, list):
        raise BadCell("wrong type", shown(cell), "a list of numbers")
    try:
        return [_number(piece) for piece in pieces]
    except OverflowError:
        raise BadCell("not a vector", shown(cell), "numbers that fit a float32") from None


def _pieces(text: str, delimiter: str | None) -> list[str]:
    """The parts of a text. Python's own split takes more for white space than files mean by it."""
    return text.split(delimiter) if delimiter is not None else [part for part in _BLANKS.split(text) if part]


def _number(piece: Any) -> float:
    number = decimal(piece.strip(" \t\r\n")) if isinstance(piece, str) else piece
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise BadCell("not a vector", shown(piece), "a list of decimal numbers")
    return float(number)


def as_strings(column: pa.Array) -> pa.StringArray:
    """A column of texts or whole numbers as strings; nulls stay."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    readable = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (readable or pa.types.is_null(kind) or pa.types.is_string_view(kind)):
        raise BadCell("wrong type", str(column.type), "texts or whole numbers")
    return column.cast(kind).cast(pa.string()) if kind != column.type else column.cast(pa.string())


def with_nul(strings: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a text has a NUL character, see `checked_text`."""
    return np.asarray(pc.fill_null(pc.match_substring(strings, "\0"), False).to_numpy(zero_copy_only=False), np.bool_)


def as_label_lists(column: pa.Array, delimiter: str | None) -> pa.ListArray:
    """A column of lists, or of texts with a delimiter, as lists of strings; nulls stay."""
    if not _is_list(column.type):
        strings = as_strings(column)
        if delimiter is None:
            raise BadCell("labels are one text", str(column.type), "a list column", NEEDS_DELIMITER)
        return _trimmed(pc.split_pattern(strings, pattern=delimiter))
    return _lists(column, as_strings(column.flatten()))


def as_vectors(column: pa.Array) -> pa.ListArray:
    """A column of lists of numbers as lists of float64; nulls stay."""
    kind = column.type.value_type if _is_list(column.type) else None
    if kind is None or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise BadCell("wrong type", str(column.type), "a list of numbers")
    return _lists(column, column.flatten().cast(pa.float64(), safe=False))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _lists(column: pa.Array, flat: pa.Array) -> pa.ListArray:
    """Lists as long as those of `column`, over other values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    return rebuilt(lengths, flat, column.is_null())


def rebuilt(lengths: npt.NDArray[np.int64], flat: pa.Array, null: pa.BooleanArray | None = None) -> pa.ListArray:
    """A list column from the lengths of its lists and their flat values."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=null)


def _trimmed(lists: pa.ListArray) -> pa.ListArray:
    """The lists without blanks around their texts, and without empty texts (as a delimiter at the end makes)."""
    flat = pc.utf8_trim_whitespace(lists.flatten())
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    kept = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(kept)])
    ends = np.cumsum(lengths)
    return rebuilt(before[ends] - before[ends - lengths], flat.filter(pa.array(kept)), lists.is_null())
