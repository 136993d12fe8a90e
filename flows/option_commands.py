"""``eyrie options``: what can be set in a preset, in the form and with ``--set``."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from flows.catalogue import FLOWS
from flows.reference import COLUMNS, Place, find_place, reference_markdown
from flows.terminal import wide_console


def show_options(path: str | None, markdown: bool) -> int:
    """Print the options of a place; without one, the parameters of each flow."""
    if markdown:
        print(reference_markdown(), end="")
        return 0
    if path is None:
        for name, entry in FLOWS.items():
            print(f"{name}: {', '.join(Place.of(entry.params).children)}")
        print("eyrie options model.parabel prints the options of one of them; docs/reference.md has all.")
        return 0
    place = find_place(path)
    console = wide_console()
    if place.description:
        console.print(place.description, markup=False, highlight=False)
    if "properties" in place.schema:
        table, rows = Table(*COLUMNS), list(map(list, place.rows()))
    else:
        table, rows = Table("kind", "what it is"), [[kind, one.description] for kind, one in place.kinds.items()]
    for row in rows:
        table.add_row(*map(escape, row))
    if table.row_count:
        console.print(table)
    return 0
