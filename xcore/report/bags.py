"""Which row of a bag explains a label: some training bags, as the model sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from xcore.models.bags import EXPLAINED_FILE
from xcore.report.html import Html, element, foreign, note, section, table
from xcore.report.rows import label_names, some_rows
from xcore.report.run import Run
from xcore.report.wording import count, percent, score, shorten

MOST_BAGS = 5
NAME, ROW_ID = 80, 80


def bags_section(run: Run) -> Html | None:
    """Some bags with their best labels and the row that explains each; None where the model knows no bags."""
    path = run["model"].directory / EXPLAINED_FILE
    if not path.is_file():
        return None
    bags = pq.read_table(path).slice(0, MOST_BAGS).to_pylist()
    rows = sorted({row for bag in bags for row in bag["rows"]})
    ids = some_rows(run.dataset.directory / "train_rows.parquet", rows, ["id"]) if rows else {}
    names = label_names(run.dataset.directory, sorted({label for bag in bags for label in bag["labels"]}))
    shown = [line for bag in bags for line in _lines(bag, ids, names)]
    known = run.counts("model").get("explained_precision")
    quality = f"Of the labels that a bag has, {percent(known, 1)}% are explained by a row that carries them."
    return section(
        "bags",
        "Which row explains a label",
        element("p", quality) if known is not None else None,
        table(["Bag", "Label", "Score", "Explaining row", "Its part of the evidence, %"], shown),
        note("The best labels of some training bags. The evidence of a row is its masked value or its probability."),
    )


def _lines(bag: Mapping[str, Any], ids: Mapping[int, Mapping[str, Any]], names: Mapping[int, str]) -> list[list[Any]]:
    columns = (bag[name] for name in ("labels", "scores", "rows", "weights"))
    return [
        [
            count(bag["bag"]),
            foreign(shorten(names.get(label, str(label)), NAME)),
            score(value),
            foreign(shorten(str(ids[row]["id"]), ROW_ID)),
            percent(weight, 1),
        ]
        for label, value, row, weight in zip(*columns, strict=True)
    ]
