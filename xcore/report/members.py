"""Models side by side: rows with their true labels, and the best labels of an ensemble and of each of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from xcore.artifacts import Artifact
from xcore.numeric.matrices import Int64
from xcore.report.html import Child, Html, element, foreign, note, section, table
from xcore.report.offers import Offers
from xcore.report.rows import label_names, some_rows
from xcore.report.run import Run
from xcore.report.wording import shorten

ROWS = 12
PLACES = 5
SNIPPET, NAME = 160, 60


def members_section(run: Run, offers: Offers) -> Html | None:
    """Rows at even distances, with a column for each model inside the ensemble; None if there are no such models."""
    compared = _rankings(run)
    rows = _evenly(np.flatnonzero(offers.n_true > 0))
    if len(compared) < 2 or not rows:
        return None
    file, columns = run.dataset.directory / f"{run.split}.parquet", ["labels"]
    true = some_rows(file, rows, [*columns, "text"] if run.dataset.form == "text" else columns)
    ids = some_rows(run.dataset.directory / f"{run.split}_rows.parquet", rows, ["id"])
    best = {title: _best(artifact, rows) for title, artifact in compared.items()}
    labels = {label for row in true.values() for label in row["labels"]}
    labels |= {label for found in best.values() for offered in found.values() for label in offered}
    names = label_names(run.dataset.directory, sorted(labels))
    lines: list[list[Child]] = []
    for row in rows:
        own = true[row]["labels"]
        title = foreign(shorten(str(true[row].get("text") or ids[row]["id"]), SNIPPET))
        lines.append([title, _places(own[:PLACES], (), names)])
        lines[-1] += [_places(found[row], own, names) for found in best.values()]
    return section(
        "members",
        "Models side by side",
        note(
            f"Rows of the {run.split} split at even distances, at most {PLACES} true labels, and the {PLACES} best "
            "labels of the ensemble and of each of its models. ✓: a true label."
        ),
        table(["Row", "True labels", *compared], lines),
    )


def _rankings(run: Run) -> dict[str, Artifact]:
    """The predictions of the run, and those that they were made of, by what people call their model."""
    by_id = {artifact.ref.id: artifact for artifact in run.lineage}
    found = {run.model_name: run["predictions"]}
    for role, ref in run["predictions"].manifest.inputs.items():
        if ref.kind == "predictions" and ref.id in by_id:
            kind = by_id[ref.id].manifest.options["model"]["kind"]
            found[f"{kind} ({role})"] = by_id[ref.id]
    return found


def _evenly(rows: Int64) -> list[int]:
    places = ((np.arange(ROWS) + 0.5) * len(rows) / ROWS).astype(np.int64)
    chosen: list[int] = np.unique(rows[places]).tolist() if len(rows) else []
    return chosen


def _best(predictions: Artifact, rows: Sequence[int]) -> dict[int, list[int]]:
    found = some_rows(predictions.directory / "predictions.parquet", rows, ["labels"])
    return {row: values["labels"][:PLACES] for row, values in found.items()}


def _places(labels: Sequence[int], true: Sequence[int], names: Mapping[int, str]) -> Html:
    """One line per label; true ones are marked."""
    return element(
        "ol",
        [
            element(
                "li",
                element("span", "✓", class_="hit", title="true") if label in true else None,
                foreign(shorten(names.get(label, str(label)), NAME)),
            )
            for label in labels
        ],
    )
