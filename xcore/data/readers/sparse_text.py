"""A compiled parser for lines like ``3,17 0:0.5 12:1e-3``: byte blocks in, CSR parts and bad lines out."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from xcore.data.readers.base import INT32_MAX
from xcore.data.readers.numerals import decimal
from xcore.data.readers.sparse_errors import Fault, Grammar, explain, token_at
from xcore.data.readers.sparse_rows import Lines, sort_lists
from xcore.data.readers.streams import LineBlock
from xcore.numeric.matrices import Float32, Int32, Int64

Bytes: TypeAlias = npt.NDArray[np.uint8]

FLOAT32_MAX = float(np.finfo(np.float32).max)
POWERS = tuple(float(f"1e{power}") for power in range(61))
MOST_POWER, EXACT_POWER, EXACT_MANTISSA = 60, 22, 2**53
MOST_DIGITS = 18  # of a mantissa that surely fits an int64

SPACE, TAB, RETURN, NEWLINE, COLON, COMMA, HASH = (ord(c) for c in " \t\r\n:,#")
ZERO, DOT, PLUS, MINUS, SMALL_E, LARGE_E = (ord(c) for c in "0.+-eE")

# Plain ints: compiled code cannot look into an enumeration without paying for it.
BAD_LABEL, LABEL_RANGE = int(Fault.LABEL), int(Fault.LABEL_RANGE)
BAD_FEATURE, FEATURE_RANGE, NO_COLON = int(Fault.FEATURE), int(Fault.FEATURE_RANGE), int(Fault.COLON)


class Arrays(NamedTuple):
    """What the compiled parser fills: see `Lines`, and the values it leaves to Python (position, row, byte)."""

    lines: Int64
    label_offsets: Int64
    labels: Int32
    offsets: Int64
    indices: Int32
    values: Float32
    faults: npt.NDArray[np.int8]
    spots: Int64
    doubts: Int64


@numba.njit(cache=True, nogil=True)
def _count(text: Bytes) -> tuple[int, int, int]:
    """How many line ends, colons and commas there are: bounds for rows, features and labels."""
    newlines, colons, commas = 0, 0, 0
    for byte in text:
        newlines += byte == NEWLINE
        colons += byte == COLON
        commas += byte == COMMA
    return newlines, colons, commas


@numba.njit(cache=True, nogil=True, inline="always")
def _is_blank(byte: int) -> bool:
    return byte <= SPACE and byte in (SPACE, TAB, RETURN)  # most bytes are told by the first comparison


@numba.njit(cache=True, nogil=True)
def _digits(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """A run of digits from `at`: its number (some number above INT32_MAX if it is larger), and where it ends."""
    number = 0
    while at < end:
        digit = int(text[at]) - ZERO
        if digit < 0 or digit > 9:
            break
        if number <= INT32_MAX:
            number = number * 10 + digit
        at += 1
    return number, at


@numba.njit(cache=True, nogil=True)
def _value(text: Bytes, at: int, end: int) -> tuple[float, int, bool]:
    """A decimal number, where it ends, and whether its float32 is certain to be that of the nearest float64.

    A mantissa up to 2^53 times or over a power of ten up to 22 is rounded once, so it is exact. Any other product is
    within 4 roundings (2^-51) of the truth, so it is right if both ends of that interval give one float32. What is
    neither (and nan, inf, or no number at all) is left to the caller.
    """
    negative = at < end and text[at] == MINUS
    if negative or (at < end and text[at] == PLUS):
        at += 1
    mantissa, digits, power, seen, whole, point = 0, 0, 0, 0, True, 0
    while at < end:
        digit = int(text[at]) - ZERO
        if 0 <= digit <= 9:
            seen += 1
            if digits < MOST_DIGITS:
                mantissa = mantissa * 10 + digit
                digits += mantissa > 0
                power -= point
            else:
                whole = False
                power += 1 - point
        elif text[at] == DOT and point == 0:
            point = 1
        else:
            break
        at += 1
    if at < end and seen > 0 and (text[at] == SMALL_E or text[at] == LARGE_E):
        at += 1
        down = at < end and text[at] == MINUS
        if down or (at < end and text[at] == PLUS):
            at += 1
        start = at
        exponent, at = _digits(text, at, end)
        seen = at - start
        power += -exponent if down else exponent
    if seen == 0 or (at < end and not _is_blank(text[at])):
        return 0.0, at, False
    if mantissa == 0 or power < -MOST_POWER or power > MOST_POWER:
        return 0.0, at, mantissa == 0 and not negative
    value = mantissa * POWERS[power] if power >= 0 else mantissa / POWERS[-power]
    sure = whole and mantissa <= EXACT_MANTISSA and -EXACT_POWER <= power <= EXACT_POWER
    if not sure:
        sure = np.float32(value * (1.0 - 2.0**-50)) == np.float32(value * (1.0 + 2.0**-50))
    return -value if negative else value, at, sure and value <= FLOAT32_MAX


@numba.njit(cache=True, nogil=True)
def _labels(text: Bytes, at: int, end: int, last_label: int, labels: Int32, n: int) -> tuple[int, int, int, int, bool]:
    """One label list: where it ends, how many labels there are now, what is wrong, where, and whether it ascends."""
    before, ascending = -1, True
    while True:
        start = at
        label, at = _digits(text, at, end)
        if at == start or not (at == end or text[at] == COMMA or _is_blank(text[at])):
            return at, n, BAD_LABEL, start, ascending
        if label > last_label:
            return at, n, LABEL_RANGE, start, ascending
        ascending = ascending and label > before
        before = label
        labels[n] = label
        n += 1
        if at == end or text[at] != COMMA:
            return at, n, 0, 0, ascending
        at += 1


@numba.njit(cache=True, nogil=True)
def _features(
    text: Bytes, at: int, end: int, first: int, last: int, row: int, out: Arrays, n: int, n_doubts: int
) -> tuple[int, int, int, int, bool]:
    """The ``id:value`` tokens of a line: the features and doubts by now, what is wrong, where, and if ids ascend."""
    before, ascending = -1, True
    while True:
        while at < end and _is_blank(text[at]):
            at += 1
        if at == end:
            return n, n_doubts, 0, 0, ascending
        start = at
        feature, at = _digits(text, at, end)
        if at in (start, end) or text[at] != COLON:
            cut_off = at > start and (at == end or _is_blank(text[at]))
            return n, n_doubts, NO_COLON if cut_off else BAD_FEATURE, start, ascending
        if feature < first or feature > last:
            return n, n_doubts, FEATURE_RANGE, start, ascending
        start = at + 1
        value, at, sure = _value(text, start, end)
        if not sure:
            out.doubts[n_doubts, 0], out.doubts[n_doubts, 1], out.doubts[n_doubts, 2] = n, row, start
            n_doubts += 1
            while at < end and not _is_blank(text[at]):
                at += 1
        ascending = ascending and feature > before
        before = feature
        out.indices[n], out.values[n] = feature - first, value
        n += 1


@numba.njit(cache=True, nogil=True)
def _begins_with_labels(text: Bytes, at: int, end: int) -> bool:
    """Whether the token at `at` has no colon."""
    while at < end and not _is_blank(text[at]):
        if text[at] == COLON:
            return False
        at += 1
    return True


@numba.njit(cache=True, nogil=True)
def _find(text: Bytes, byte: int, at: int, end: int) -> int:
    """Where `byte` is next, or `end`."""
    while at < end and text[at] != byte:
        at += 1
    return at


@numba.njit(cache=True, nogil=True)
def _parse(
    text: Bytes, has_labels: bool, comments: bool, first: int, last: int, last_label: int, out: Arrays
) -> tuple[int, int, int, int, bool]:
    """Fill the arrays; returns how many rows, labels, features and doubts there are, and whether all lists ascend."""
    at, line, row, n_labels, n, n_doubts, ascending = 0, 0, 0, 0, 0, 0, True
    while at < len(text):
        stop = _find(text, NEWLINE, at, len(text))
        end = _find(text, HASH, at, stop) if comments else stop
        while at < end and _is_blank(text[at]):
            at += 1
        if not (comments and at == end):
            labels_before, n_before, fault, spot, ordered = n_labels, n, 0, 0, True
            first_byte = at
            if has_labels and at < end and _begins_with_labels(text, at, end):
                at, n_labels, fault, spot, ordered = _labels(text, at, end, last_label, out.labels, n_labels)
                ascending = ascending and ordered
            if fault == 0:
                n, n_doubts, fault, spot, ordered = _features(text, at, end, first, last, row, out, n, n_doubts)
                ascending = ascending and ordered
            if fault != 0:
                n_labels, n = labels_before, n_before
                while n_doubts > 0 and out.doubts[n_doubts - 1, 1] == row:
                    n_doubts -= 1
            out.lines[row], out.faults[row], out.spots[row] = line, fault, spot if fault != 0 else first_byte
            row += 1
            out.label_offsets[row], out.offsets[row] = n_labels, n
        at = stop + 1
        line += 1
    return row, n_labels, n, n_doubts, ascending


def parse_lines(block: LineBlock, file: str, grammar: Grammar) -> Lines:
    """Parse a block of lines; releases the interpreter lock, so blocks can be parsed on several threads.

    Cost O(bytes). The arrays take 8 bytes a feature and 4 a label; 24 bytes a feature more are reserved but touched
    only for decimals with more digits or a larger exponent than the compiled parser is certain of.
    """
    text = np.frombuffer(block.text, np.uint8)
    newlines, colons, commas = _count(text)
    out = _arrays(newlines + 1, colons, commas)
    rows, n_labels, n, n_doubts, ascending = _parse(
        text, grammar.labels, grammar.comments, grammar.first_feature, grammar.last_feature, grammar.last_label, out
    )
    label_offsets, labels = out.label_offsets[: rows + 1], out.labels[:n_labels]
    offsets, indices, values = out.offsets[: rows + 1], out.indices[:n], out.values[:n]
    faults = out.faults[:rows]
    _settle_doubts(block.text, out.doubts[:n_doubts], values, faults, out.spots)
    if not ascending:
        twice = sort_lists(offsets, indices, values)
        sort_lists(label_offsets, labels, np.zeros(n_labels, np.int8))
        if not grammar.repeats:
            faults[twice[faults[twice] == Fault.NONE]] = Fault.FEATURE_REPEATED
    bad = {
        row: explain(block, file, grammar, int(out.lines[row]), Fault(faults[row]), int(out.spots[row]))
        for row in np.flatnonzero(faults).tolist()
    }
    return Lines(out.lines[:rows] + block.first_line, label_offsets, labels, offsets, indices, values, bad)


def _arrays(rows: int, colons: int, commas: int) -> Arrays:
    return Arrays(
        lines=np.empty(rows, np.int64),
        label_offsets=np.zeros(rows + 1, np.int64),
        labels=np.empty(commas + rows, np.int32),
        offsets=np.zeros(rows + 1, np.int64),
        indices=np.empty(colons, np.int32),
        values=np.empty(colons, np.float32),
        faults=np.empty(rows, np.int8),
        spots=np.empty(rows, np.int64),
        doubts=np.empty((colons, 3), np.int64),
    )


def _settle_doubts(text: bytes, doubts: Int64, values: Float32, faults: npt.NDArray[np.int8], spots: Int64) -> None:
    """Parse again, with Python's float, the values that the compiled parser is not sure about."""
    for position, row, start in doubts.tolist():
        value = decimal(token_at(text, start).decode("latin1"))
        if value is None:
            fault = Fault.VALUE
        else:
            fault = Fault.NAN if math.isnan(value) else Fault.NONE if abs(value) <= FLOAT32_MAX else Fault.INFINITE
        values[position] = value if value is not None and fault == Fault.NONE else 0.0
        if fault != Fault.NONE and faults[row] == Fault.NONE:
            faults[row], spots[row] = fault, start
