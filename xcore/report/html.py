"""Markup that cannot be forgotten to escape: text is text, and only `Html` is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from markupsafe import Markup, escape

from xcore.report.wording import Quantity

VOID = frozenset({"meta", "rect", "line", "polyline", "circle", "path"})
NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


# Markup; a string of any other type is text, and is escaped when it becomes part of a page.
Html: TypeAlias = Markup
Child: TypeAlias = "str | int | Iterable[Child] | None"


def element(tag: str, *children: Child, **attributes: str | float | None) -> Html:
    """One element with what is inside it.

    A trailing underscore of an attribute's name is cut (``class_``), other underscores become hyphens; an attribute
    that is None is left out.
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(_attribute(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Html(f"<{tag}{named}/>" if tag != "meta" else f"<{tag}{named}>")
    return Html(f"<{tag}{named}>{markup(*children)}</{tag}>")


def markup(*children: Child) -> Html:
    """Children one after the other: text escaped, markup as it is, nothing for None."""
    return Html("".join(_of_child(child) for child in children))


def raw(tag: str, content: str) -> Html:
    """A ``style`` or ``script`` of our own. Its content is not escaped: never use it for input data."""
    return Html(f"<{tag}>{content}</{tag}>")


def foreign(text: str) -> Html:
    """Text from outside, in whatever script and direction: it cannot turn around what stands beside it."""
    return element("bdi", text)


def section(key: str, title: str, *children: Child) -> Html:
    """A part of the page that the table of contents can point at."""
    return element("section", element("h2", title), *children, id=key)


def table(head: Sequence[str], rows: Iterable[Sequence[Child]], *, sortable: bool = False) -> Html:
    """A table; a `Quantity` stands at the right, and is what a sortable table is sorted by."""
    lines = list(rows)
    numeric = [isinstance(cell, Quantity) for cell in lines[0]] if lines else [False] * len(head)
    titles = [
        element("th", title, scope="col", class_="number" if right else None)
        for title, right in zip(head, numeric, strict=True)
    ]
    body = [element("tr", *(_value("td", cell) for cell in line)) for line in lines]
    content = element(
        "table",
        element("thead", element("tr", titles)),
        element("tbody", body),
        class_="sortable" if sortable else None,
    )
    return element("div", content, class_="scroll")


def facts(rows: Iterable[tuple[Child, Child]]) -> Html:
    """Names and what they are, in as many columns as there is room for."""
    return element("dl", [element("div", element("dt", name), _value("dd", value)) for name, value in rows])


def folded(title: str, *children: Child) -> Html:
    """What is only read when asked for."""
    return element("details", element("summary", title), *children)


def note(*children: Child) -> Html:
    """An explanation in small print."""
    return element("p", *children, class_="note")


def _value(tag: str, content: Child) -> Html:
    if isinstance(content, Quantity):
        return element(tag, str(content), class_="number", data_value=content.value if content.is_known else None)
    return element(tag, content)


def _of_child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return str(child)
    if isinstance(child, str | int):
        return _escaped(str(child))
    return "".join(_of_child(each) for each in child)


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


def _escaped(text: str) -> Markup:
    return escape(NOT_PRINTABLE.sub("\ufffd", text))
