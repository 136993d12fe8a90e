"""``eyrie suggest``: which rows a person should label next."""

from __future__ import annotations

import argparse
import json

from rich.markup import escape
from rich.table import Table

from flows.terminal import wide_console
from tasks.suggest import suggest_rows

SHOWN_CHARACTERS = 80


def suggest(arguments: argparse.Namespace) -> int:
    """List the rows whose own labels would tell most, the most telling one first."""
    rows = suggest_rows(arguments.id, arguments.rows)
    if arguments.json:
        print("\n".join(json.dumps(row.as_json()) for row in rows))
        return 0
    table = Table("row", "bits", "likeliest labels", "text")
    for row in rows:
        labels = ", ".join(f"{label} {confidence:.2f}" for label, confidence in row.labels.items())
        text = (row.text or "")[:SHOWN_CHARACTERS]
        table.add_row(escape(row.row), f"{row.uncertainty:.2f}", escape(labels), escape(text))
    wide_console().print(table if rows else "No row is in doubt: there is nothing to label.")
    return 0
