"""Example predictions: rows that went well, half well and wrong, chosen without looking at which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcore.numeric.matrices import Float32, Int64
from xcore.report.html import Child, Html, element, foreign, note, section
from xcore.report.rows import batches, in_step, label_names, lists, named_in, some_rows
from xcore.report.run import Run
from xcore.report.wording import count, percent, score, shorten

EACH = 3
MOST_OFFERED = 10
MOST_TRUE = 10
SNIPPET, NAME, ROW_ID = 320, 80, 80


@dataclass(frozen=True)
class JudgedRows:
    """What became of each row that was measured.

    Attributes
    ----------
    n_true, n_hits : int64 (n,)
        True labels, and how many of them were offered.
    best_score : float32 (n,)
        Score of the first place; ``-inf`` where nothing was offered.
    """

    n_true: Int64
    n_hits: Int64
    best_score: Float32

    @classmethod
    def of(cls, run: Run) -> JudgedRows:
        """Predictions and truth read side by side, batch by batch; a few numbers per row are kept."""
        offered_file = batches(run["predictions"].directory / "predictions.parquet", ["labels", "scores"])
        true_file = batches(run.dataset.directory / f"{run.split}.parquet", ["labels"])
        parts = [_judge(offered, true) for offered, true in in_step(offered_file, true_file)]
        n_true, n_hits, best = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(n_true, n_hits, best)

    def classes(self, k: int) -> dict[str, Int64]:
        """Rows by how much of what k places can hold was found, in order; rows without a true label are in none."""
        known, full = self.n_true > 0, self.n_hits == np.minimum(self.n_true, k)
        return {
            "Everything right": np.flatnonzero(known & full),
            "Partly right": np.flatnonzero((self.n_hits > 0) & ~full),
            "Everything wrong": np.flatnonzero(known & (self.n_hits == 0)),
        }

    def surest_mistakes(self, rows: Int64) -> Int64:
        """Of the rows given, those with the highest first score."""
        order = np.lexsort((rows, -self.best_score[rows]))
        return np.sort(rows[order][:EACH])


def examples_section(run: Run) -> Html:
    """Some rows of each class, with what was offered and what is true."""
    judged = JudgedRows.of(run)
    classes = judged.classes(int(run.options("predictions")["k"]))
    n_known = max(int((judged.n_true > 0).sum()), 1)
    chosen = {
        f"{name}: {percent(len(rows) / n_known, 1)}% ({count(len(rows))} of {count(n_known)} rows)": _evenly(rows)
        for name, rows in classes.items()
    }
    chosen["Surest mistakes: everything wrong, with the highest score"] = judged.surest_mistakes(
        classes["Everything wrong"]
    )
    details = _Details.read(run, np.unique(np.concatenate(list(chosen.values()))).tolist())
    return section(
        "examples",
        "Example predictions",
        note(
            f"Rows of the {run.split} split. ✓: a true label, ✗: not a true one; the number is the model's score. "
            "✗ is grey where all true labels were offered. "
            "Everything is right where every true label was offered, or every place holds a true one. The first three "
            "lists take rows at even distances, so they are neither the best nor the worst of their kind."
        ),
        [
            [element("h3", title), element("div", [details.card(row) for row in rows.tolist()], class_="examples")]
            for title, rows in chosen.items()
            if len(rows)
        ],
    )


@dataclass(frozen=True)
class _Details:
    """All that is shown of the chosen rows."""

    offered: Mapping[int, Mapping[str, Any]]
    true: Mapping[int, Mapping[str, Any]]
    ids: Mapping[int, Mapping[str, Any]]
    names: Mapping[int, str]

    @classmethod
    def read(cls, run: Run, rows: Sequence[int]) -> _Details:
        directory, split = run.dataset.directory, run.split
        columns = ["labels", "text"] if run.dataset.form == "text" else ["labels"]
        offered = some_rows(run["predictions"].directory / "predictions.parquet", rows, ["labels", "scores"])
        true = some_rows(directory / f"{split}.parquet", rows, columns)
        ids = some_rows(directory / f"{split}_rows.parquet", rows, ["id"])
        labels = {label for each in (offered, true) for row in each.values() for label in row["labels"]}
        return cls(offered, true, ids, label_names(directory, sorted(labels)))

    def card(self, row: int) -> Html:
        true = self.true[row]["labels"]
        offered = list(zip(self.offered[row]["labels"], self.offered[row]["scores"], strict=True))[:MOST_OFFERED]
        missed = [label for label in true if label not in self.offered[row]["labels"]]
        places = [self._place(label, label in true, bool(missed), score(value)) for label, value in offered]
        text = self.true[row].get("text")
        return element(
            "article",
            element("h4", "Row ", foreign(shorten(str(self.ids[row]["id"]), ROW_ID))),
            element("p", foreign(shorten(text, SNIPPET)), class_="soft") if text else None,
            element("ol", places) if places else note("No label was offered."),
            self._missed(missed),
            class_="example",
        )

    def _place(self, label: int, hit: bool, missed: bool, value: str) -> Html:
        """A label that is not true fills a place of no other where every true label was offered: it is grey then."""
        kind = "hit" if hit else "miss" if missed else "spare"
        mark = element("span", "✓" if hit else "✗", class_=kind, title="true" if hit else "not true")
        return element("li", mark, self._name(label), " ", element("small", value))

    def _missed(self, labels: Sequence[int]) -> Html | None:
        if not labels:
            return None
        names: list[Child] = []
        for label in labels[:MOST_TRUE]:
            names += ["; " if names else "", self._name(label)]
        more = f" and {count(len(labels) - MOST_TRUE)} more" if len(labels) > MOST_TRUE else None
        return element("p", element("span", "True but not offered: ", class_="soft"), names, more)

    def _name(self, label: int) -> Html:
        return foreign(shorten(self.names.get(label, str(label)), NAME))


def _judge(offered: Any, true: Any) -> tuple[Int64, Int64, Float32]:
    n = offered.num_rows
    rows, labels = lists(offered, "labels")
    _, scores = lists(offered, "scores")
    true_rows, true_labels = lists(true, "labels")
    hit = named_in(rows, labels, true_rows, true_labels)
    best = np.full(n, -np.inf, np.float32)
    np.maximum.at(best, rows, scores)
    return np.bincount(true_rows, minlength=n), np.bincount(rows[hit], minlength=n), best


def _evenly(rows: Int64) -> Int64:
    """A few of the rows at even distances: the middles of as many equal parts."""
    if len(rows) <= EACH:
        return rows
    chosen: Int64 = rows[((np.arange(EACH) + 0.5) * len(rows) / EACH).astype(np.int64)]
    return chosen
