"""The data: rows by split, labels of a row, how frequent labels are, and what was set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from xcore.components import flatten
from xcore.data.readers.base import Split
from xcore.metrics.frequency import THIRDS, thirds_of_mass
from xcore.numeric.matrices import Int64
from xcore.report.charts import Axis, bars, lines, meter
from xcore.report.html import Child, Html, element, facts, foreign, markup, note, section, table
from xcore.report.rows import batches, lists
from xcore.report.run import Run
from xcore.report.wording import MOST_ITEMS, count, mean, percent, shorten, words

MOST_BARS = 16
CURVE_POINTS = 120
BANDS = ((0, 0), (1, 1), (2, 5), (6, 10), (11, 100), (101, 1000), (1001, None))


def data_section(run: Run, train_counts: Int64) -> Html:
    """Statistics of the dataset that was learnt from and measured on."""
    sizes = {split: LabelsOfRows.of(run, split) for split in run.dataset.splits}
    return section(
        "data",
        "Data",
        facts(_totals(run, train_counts)),
        [note(sentence) for sentence in run.counts("dataset").get("notes", ())],
        _splits(run, sizes),
        _labels_per_row_chart(sizes),
        element("h3", "How frequent labels are"),
        _frequency_curve(train_counts),
        _bands(train_counts),
        _thirds(train_counts),
        _groups(run),
        _set_aside(run),
    )


def train_counts_of(run: Run) -> Int64:
    """How often each label is named in train (L,)."""
    column = pq.read_table(run.dataset.directory / "labels.parquet", columns=["train_count"])["train_count"]
    counts: Int64 = column.to_numpy()
    return counts


@dataclass(frozen=True)
class LabelsOfRows:
    """How many rows of a split have 0, 1, 2, ... labels of their own."""

    rows_with: Int64

    @classmethod
    def of(cls, run: Run, split: Split) -> LabelsOfRows:
        """Counted batch by batch; the labels themselves are not kept."""
        rows_with = np.zeros(1, np.int64)
        for batch in batches(run.dataset.directory / f"{split}.parquet", ["labels"]):
            rows, _ = lists(batch, "labels")
            found = np.bincount(np.bincount(rows, minlength=batch.num_rows), minlength=len(rows_with))
            found[: len(rows_with)] += rows_with
            rows_with = found
        return cls(rows_with)

    @property
    def rows(self) -> int:
        return int(self.rows_with.sum())

    @property
    def labels(self) -> int:
        return int((self.rows_with * np.arange(len(self.rows_with))).sum())

    @property
    def median(self) -> int:
        return int(np.searchsorted(np.cumsum(self.rows_with), (self.rows + 1) // 2))

    @property
    def most(self) -> int:
        return int(np.flatnonzero(self.rows_with).max(initial=0))


def _totals(run: Run, train_counts: Int64) -> Iterable[tuple[Child, Child]]:
    counts, dataset = run.counts("dataset"), run.dataset
    yield "Rows", count(sum(dataset.n_rows(split) for split in dataset.splits))
    yield "Labels", count(dataset.n_labels)
    yield "Labels with training rows", count(int((train_counts > 0).sum()))
    if "labels_not_in_train" in counts:
        yield "Labels only in other splits", count(counts["labels_not_in_train"])
    if "labels_never_seen" in counts:
        yield "Labels in no split", count(counts["labels_never_seen"])
    yield (
        "Form",
        {"sparse": "sparse features", "text": "text", "vector": "dense vectors", "image": "images"}[dataset.form],
    )
    yield "Features", count(run.counts("features").get("features", dataset.n_features))
    for split, same in counts.get("rows_same_as_in_train", {}).items():
        yield f"{split.capitalize()} rows with exactly the features of a train row", count(same)
    if "rows_read" in counts:
        yield "Rows read", count(counts["rows_read"])
    yield "Rows set aside", count(counts.get("quarantined", {}).get("rows", 0))


def _splits(run: Run, sizes: Mapping[Split, LabelsOfRows]) -> Html:
    non_zeros = run.counts("features").get("non_zeros") or run.counts("dataset").get("nnz", {})
    rows: list[Sequence[Child]] = []
    for split, size in sizes.items():
        own = size.labels > 0
        rows.append(
            [
                split + (" (measured)" if split == run.split else ""),
                count(size.rows),
                mean(size.labels / max(size.rows, 1) if own else None),
                count(size.median if own else None),
                count(size.most if own else None),
                count(int(size.rows_with[0])),
                mean(non_zeros.get(split, 0) / max(size.rows, 1) or None),
            ]
        )
    head = ["Split", "Rows", "Labels per row", "median", "most", "Rows without labels", "Non-zero features per row"]
    in_groups = note(
        "Labels of train rows belong to their groups. What is called training rows of a label below is how many times "
        "groups name it."
    )
    return markup(table(head, rows), in_groups if "groups" in run.counts("dataset") else None)


def _labels_per_row_chart(sizes: Mapping[Split, LabelsOfRows]) -> Html | None:
    shown = {split: size for split, size in sizes.items() if size.labels}
    if not shown:
        return None
    most = max(size.most for size in shown.values())
    n_bars = min(most + 1, MOST_BARS)
    shares: dict[str, list[float]] = {}
    for split, size in shown.items():
        rows_with = np.zeros(max(most + 1, n_bars))
        rows_with[: min(len(size.rows_with), most + 1)] = size.rows_with[: most + 1]
        kept = np.append(rows_with[: n_bars - 1], rows_with[n_bars - 1 :].sum())
        shares[split] = (kept / size.rows).tolist()
    names = [str(i) for i in range(n_bars)]
    names[-1] += "+" if most >= n_bars else ""
    return bars("Labels of a row", names, shares, x="labels", y="share of the rows")


def _frequency_curve(train_counts: Int64) -> Html | None:
    """Count against rank, both logarithmic, at ranks spaced evenly on that scale."""
    ordered = -np.sort(-train_counts[train_counts > 0])
    if len(ordered) < 2:
        return None
    ranks = np.unique(np.geomspace(1, len(ordered), CURVE_POINTS).round().astype(np.int64))
    points = [(float(rank), float(ordered[rank - 1])) for rank in ranks]
    x = Axis("rank of the label, most frequent first", 1, len(ordered), log=True)
    y = Axis("training rows", max(1, int(ordered[-1])), max(int(ordered[0]), int(ordered[-1]) + 1), log=True)
    return lines("Training rows of each label, by rank", {"labels": points}, x=x, y=y)


def _bands(train_counts: Int64) -> Html:
    rows: list[Sequence[Child]] = []
    total = max(int(train_counts.sum()), 1)
    for low, high in BANDS:
        inside = train_counts[(train_counts >= low) & (train_counts <= (high if high is not None else np.inf))]
        name = f"{low:,}" if low == high else f"{low:,} to {high:,}" if high is not None else f"{low:,} or more"
        share = len(inside) / max(len(train_counts), 1)
        mass = int(inside.sum()) / total
        rows.append([name, count(len(inside)), percent(share, 1), meter(share), percent(mass, 1), meter(mass)])
    head = ["Training rows", "Labels", "% of the labels", "", "% of all label entries", ""]
    return table(head, rows)


def _thirds(train_counts: Int64) -> Html:
    third = thirds_of_mass(train_counts)
    parts = [f"{name} {count(int((third == i).sum()))} labels" for i, name in enumerate(THIRDS)]
    return note(
        f"Head, torso and tail each hold a third of the label entries in train: {', '.join(parts)}. "
        "Labels without training rows count as tail."
    )


def _groups(run: Run) -> Html | None:
    counts = run.counts("groups") or run.counts("dataset").get("groups", {})
    if not counts:
        return None
    named = [(words(name), count(value)) for name, value in flatten(counts).items() if isinstance(value, int)]
    return markup(element("h3", "Groups of rows"), facts(named))


def _set_aside(run: Run) -> Html | None:
    """Rows that were not used, by reason, with the first examples."""
    reasons: Mapping[str, Any] = run.counts("dataset").get("quarantined", {}).get("reasons", {})
    if not reasons:
        return None
    ordered = sorted(reasons.items(), key=lambda item: (-item[1]["rows"], item[0]))
    rows: list[Sequence[Child]] = [
        [
            foreign(shorten(problem, 120)),
            count(reason["rows"]),
            [element("div", foreign(shorten(example, 300))) for example in reason["first"]],
        ]
        for problem, reason in ordered[:MOST_ITEMS]
    ]
    content = table(["Problem", "Rows", "First examples"], rows, sortable=True)
    return markup(element("h3", "Rows set aside, and why"), content)
