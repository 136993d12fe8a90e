"""What can be wrong with a line of sparse text, and how to say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from xcore.data.readers.base import INT32_MAX
from xcore.data.readers.streams import LineBlock
from xcore.errors import InputError, Place


class Fault(IntEnum):
    """Result of parsing a line; the numbers are what the compiled parser returns."""

    NONE = 0
    LABEL = 1
    LABEL_RANGE = 2
    FEATURE = 3
    FEATURE_RANGE = 4
    FEATURE_REPEATED = 5
    COLON = 6
    VALUE = 7
    NAN = 8
    INFINITE = 9


TOKEN = re.compile(rb"[^ \t\r\n]*")
SHOWN = 60  # bytes of a token in a message
LABEL_FAULTS = (Fault.LABEL, Fault.LABEL_RANGE)


@dataclass(frozen=True)
class Grammar:
    """Which lines are right.

    Attributes
    ----------
    labels : bool
        Lines begin with a comma-separated label list (which may be left out: the first token then has a colon).
    comments : bool
        ``#`` starts a comment, and lines without a token are not rows.
    first_feature, last_feature, last_label : int
        The ids allowed; labels start at 0.
    noun : str
        What the numbers before the colons are, for messages.
    repeats : bool
        Whether an id before a colon may stand twice on a line, as ids of labels may: ingestion judges those.
    """

    labels: bool = True
    comments: bool = False
    first_feature: int = 0
    last_feature: int = INT32_MAX
    last_label: int = INT32_MAX
    noun: str = "feature"
    repeats: bool = False


def token_at(text: bytes, start: int) -> bytes:
    """The bytes from `start` to the next blank. A form feed is no blank here, as it is none to the compiled parser."""
    match = TOKEN.match(text, start)
    return match[0] if match else b""


def explain(block: LineBlock, file: str, grammar: Grammar, line: int, fault: Fault, spot: int) -> InputError:
    """The error for one bad line.

    Parameters
    ----------
    line : int
        Number of the line in the block, from 0.
    spot : int
        Offset of the offending token in the block, or of the line where an id is repeated: that one is found here.
    """
    start = block.text.rfind(b"\n", 0, spot) + 1
    if fault == Fault.FEATURE_REPEATED:
        end = block.text.find(b"\n", start)
        spot = start + _second_occurrence(block.text[start : end if end >= 0 else None])
    token = token_at(block.text, spot)
    if fault in LABEL_FAULTS:
        token = token.split(b",", 1)[0]
    problem, expected, fix = _message(grammar, fault, token)
    shown = token[:SHOWN].decode("utf-8", "backslashreplace")
    found = repr(shown) + ("..." if len(token) > SHOWN else "") if token else "nothing"
    return InputError(Place(file, block.first_line + line, spot - start + 1), problem, found, expected, fix)


def _second_occurrence(line: bytes) -> int:
    """Where in a line the first repeated feature id stands for the second time."""
    seen: set[bytes] = set()
    tokens, at = line.split(b"#", 1)[0], 0
    for token in tokens.split():
        at = tokens.index(token, at)
        if b":" in token:
            number = token.split(b":", 1)[0].lstrip(b"0")  # as text: Python converts no number of 5,000 digits
            if number in seen:
                return at
            seen.add(number)
        at += len(token)
    return 0


def _message(grammar: Grammar, fault: Fault, token: bytes) -> tuple[str, str, str]:
    """What is wrong, what was expected and what to do."""
    noun = grammar.noun
    bounds = f"an id from {grammar.first_feature} to {grammar.last_feature}"
    if not token.isascii():
        return "undecodable bytes", "digits", "The file may be damaged, or compressed without .gz or .zst in its name."
    if token.startswith(b"-") and fault in (Fault.LABEL, Fault.FEATURE):
        return f"negative {'label' if fault == Fault.LABEL else noun} id", "an id of 0 or more", ""
    return {
        Fault.LABEL: ("not a label id", "non-negative integers separated by commas", ""),
        Fault.LABEL_RANGE: ("label id out of range", f"an id from 0 to {grammar.last_label}", "See the file's header."),
        Fault.FEATURE: (f"not a {noun} id", f"{noun}:value", ""),
        Fault.FEATURE_RANGE: (f"{noun} id out of range", bounds, "See the header, or the reader's options."),
        Fault.FEATURE_REPEATED: (f"repeated {noun} id", f"each {noun} once per row", ""),
        Fault.COLON: (f"no value after the {noun} id", f"{noun}:value", "The line may be cut off."),
        Fault.VALUE: ("not a number", "a decimal number", "" if token else "The line may be cut off."),
        Fault.NAN: ("NaN value", "a finite number", "Leave the feature out where its value is not known."),
        Fault.INFINITE: ("infinite value", "a finite number that fits a float32", ""),
    }[fault]
