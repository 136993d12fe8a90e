"""Numbers and long texts as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal

from xcore.components import flatten

UNKNOWN = "–"
LONGEST_VALUE = 300
MOST_ITEMS = 20


class Quantity(str):
    """A number as text, which remembers the number; NaN reads as a dash."""

    value: float

    def __new__(cls, text: str, value: float) -> Quantity:
        quantity = super().__new__(cls, text if math.isfinite(value) else UNKNOWN)
        quantity.value = value
        return quantity

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.value)


def count(value: float | None) -> Quantity:
    """A whole number, in groups of three digits."""
    return Quantity("", math.nan) if value is None or math.isnan(value) else Quantity(f"{value:,.0f}", value)


def number(value: float | None) -> Quantity:
    """Any number, to four digits."""
    number = math.nan if value is None else float(value)
    is_large = math.isfinite(number) and abs(number) >= 10_000
    return Quantity(f"{number:,.0f}" if is_large else f"{number:.4g}", number)


def score(value: float) -> Quantity:
    """A model's score, of any size, always to three digits."""
    return Quantity(f"{value:#.3g}", value)


def mean(value: float | None) -> Quantity:
    """A mean of counts, to two decimals."""
    number = math.nan if value is None else float(value)
    return Quantity(f"{number:,.2f}", number)


def percent(value: float | None, digits: int = 2) -> Quantity:
    """A share in percent, without the sign."""
    share = math.nan if value is None else float(value)
    return Quantity(f"{100 * share:.{digits}f}", share)


def seconds(value: float) -> Quantity:
    """A duration."""
    if value < 60:
        return Quantity(f"{value:.2f} s" if value < 10 else f"{value:.1f} s", value)
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return Quantity(f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s", value)


def n_bytes(value: float) -> Quantity:
    """A size, in decimal units."""
    return Quantity(decimal(int(value)), value)


def shorten(text: str, longest: int) -> str:
    """One line of at most `longest` characters; what is cut away shows as an ellipsis."""
    line = re.sub(r"\s+", " ", text[: 4 * longest]).strip()
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1].rstrip() + "…"


def plain(value: Any) -> str:
    """An option's value: a number, a word, or a list cut to its first items."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = ", ".join(plain(item) for item in value[:MOST_ITEMS])
        more = f", … ({len(value):,} in all)" if len(value) > MOST_ITEMS else ""
        return shorten(items, LONGEST_VALUE) + more
    if isinstance(value, Mapping):
        return shorten(", ".join(f"{name} {plain(part)}" for name, part in value.items()), LONGEST_VALUE)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(number(value)) if isinstance(value, float) else shorten(str(value), LONGEST_VALUE)


def component(options: Mapping[str, Any]) -> str:
    """A component in words: its kind, then its options."""
    kind = plain(options.get("kind", "no kind"))
    rest = {name: value for name, value in flatten(options).items() if name != "kind"}
    return f"{kind} ({plain(rest)})" if rest else kind


def words(key: str) -> str:
    """A key of a result as words."""
    return key.replace("_", " ").replace(".", " · ")
