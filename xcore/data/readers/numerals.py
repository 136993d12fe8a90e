"""Numbers in text, read strictly. Python's own int and float also take ``1_000``, other digits and blanks around."""

from __future__ import annotations

import re

_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}|nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"0*([0-9]{1,18})", re.ASCII)


def decimal(text: str) -> float | None:
    """A decimal number (or nan, inf); None if the text is anything else."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def whole(text: str) -> int | None:
    """A whole number from 0 with at most 18 digits; None if the text is anything else."""
    match = _WHOLE.fullmatch(text)
    return int(match[1]) if match else None
