"""Where the model is weak: kinds of rows, labels that are taken for each other, and what an easy answer would reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from xcore.numeric.matrices import Int64
from xcore.report.html import Child, Html, element, foreign, note, section, table
from xcore.report.label_tables import LabelScores
from xcore.report.offers import Offers
from xcore.report.results import Results
from xcore.report.rows import label_names
from xcore.report.run import Run
from xcore.report.wording import count, percent, shorten

SHOWN_PAIRS = 15
NAME = 80
LABEL_BANDS = ((1, 1), (2, 3), (4, 6), (7, 12), (13, None))
Mask = npt.NDArray[np.bool_]


def mistakes_section(run: Run, offers: Offers, results: Results) -> Html:
    """Popular labels as a baseline, slices of the rows, and pairs of labels that are confused."""
    return section(
        "mistakes",
        "Where it is weak",
        element("h3", "Against the most popular labels"),
        _popularity(run, results),
        element("h3", "Against the training rows"),
        _training_rows(run, results),
        element("h3", "By kind of row"),
        _slices(offers),
        element("h3", "Labels that are taken for each other"),
        _confused(run, offers),
    )


def popular_precision(scores: LabelScores, n_rows: int, k: int) -> float:
    """Precision at k of an answer that offers every row the k labels with most training rows. Cost O(L log L)."""
    popular = np.argsort(-scores.in_train, kind="stable")[:k]
    return float(scores.true[popular].sum() / max(n_rows * k, 1))


def _popularity(run: Run, results: Results) -> Html:
    scores, n_rows = LabelScores.load(run["evaluation"].directory), int(run.counts("evaluation")["rows"])
    rows: list[Sequence[Child]] = []
    for key in results.keys("precision"):
        k = int(key.rpartition("_at_")[2])
        own, easy = results.metrics[key], popular_precision(scores, n_rows, k)
        rows.append([f"Precision @ {k}, %", percent(own), percent(easy), percent(own - easy)])
    return element(
        "div",
        table(["", "This model", "The same popular labels for every row", "Difference"], rows),
        note("A model that is hardly better than the labels with most training rows has learnt little from the rows."),
    )


def _training_rows(run: Run, results: Results) -> Html:
    counts = run.counts("model")
    rows: list[Sequence[Child]] = []
    for key in results.keys("precision"):
        if (known := counts.get(f"train_{key}")) is not None:
            own = results.metrics[key]
            titles = f"Precision @ {key.rpartition('_at_')[2]}, %"
            rows.append([titles, percent(known), percent(own), percent(known - own)])
    if not rows:
        return note("Not measured for this model.")
    return element(
        "div",
        table(["", "Training rows", f"{run.split.capitalize()} rows", "Difference"], rows),
        note(
            "At most 1,000 training rows, by the labels that the model learnt. A large difference means that the model "
            "knows its training rows by heart: more rows or a stronger regulariser may help. A model that looks up "
            "similar training rows finds each of these rows itself."
        ),
    )


def _slices(offers: Offers) -> Html:
    n, known = len(offers.n_true), offers.n_true > 0
    hits = np.bincount(offers.row[offers.hit], minlength=n)
    first = np.zeros(n, bool)
    first[offers.row[offers.is_first & offers.hit]] = True
    rows: list[Sequence[Child]] = []
    for name, inside in _named_slices(offers):
        here = inside & known
        if here.any():
            recall = hits[here].sum() / offers.n_true[here].sum()
            rows.append(
                [name, count(int(here.sum())), percent(float(first[here].mean()), 1), percent(float(recall), 1)]
            )
    return element(
        "div",
        table(["Rows", "Number", "Best label is right, %", "True labels found, %"], rows, sortable=True),
        note(
            "Rows without a true label are left out. Length is the number of characters of a text, or of features of a "
            "sparse row, cut at the quartiles."
        ),
    )


def _named_slices(offers: Offers) -> Iterator[tuple[str, Mask]]:
    yield "all", np.ones(len(offers.n_true), bool)
    for low, high in LABEL_BANDS:
        name = f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"
        inside = offers.n_true >= low
        yield (
            f"with {name} true label{'' if high == 1 else 's'}",
            inside if high is None else inside & (offers.n_true <= high),
        )
    if offers.length is not None and len(offers.length):
        yield from _by_length(offers.length)


def _by_length(lengths: Int64) -> Iterator[tuple[str, Mask]]:
    edges = np.unique(np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1]).astype(np.int64))
    if len(edges) == 1:
        return
    for at, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        first = low if at == 0 else low + 1
        yield f"of length {first:,} to {high:,}", (lengths >= first) & (lengths <= high)


def _confused(run: Run, offers: Offers) -> Html:
    pairs = offers.confused[offers.confused[:, 2] > 1][:SHOWN_PAIRS]
    if not len(pairs):
        return note("None: no pair of labels was confused in more than one row.")
    names = label_names(run.dataset.directory, np.unique(pairs[:, :2]).tolist())
    rows: list[Sequence[Child]] = [
        [foreign(shorten(names[true], NAME)), foreign(shorten(names[wrong], NAME)), count(times)]
        for true, wrong, times in pairs.tolist()
    ]
    return element(
        "div",
        table(["True but not offered", "Offered first instead", "Rows"], rows, sortable=True),
        note("Rows in which the first label is wrong and a true label is not among the offered ones."),
    )
