"""Which labels are found best, which worst, and which are missed most often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from xcore.numeric.matrices import Float64, Int64
from xcore.report.html import Child, Html, element, foreign, note, section, table
from xcore.report.rows import label_names
from xcore.report.run import Run
from xcore.report.wording import count, percent, shorten

SHOWN = 15
ENOUGH = (20, 10, 5, 2, 1)
NAME = 100


@dataclass(frozen=True)
class LabelScores:
    """How often each label (L,) was in train, true in the measured split, offered, and offered where it is true."""

    in_train: Int64
    true: Int64
    offered: Int64
    hits: Int64

    @classmethod
    def load(cls, directory: Path) -> LabelScores:
        columns = pq.read_table(
            directory / "per_label.parquet", columns=["train_count", "test_count", "predicted", "hits"]
        )
        return cls(*(columns[name].to_numpy() for name in ("train_count", "test_count", "predicted", "hits")))

    @cached_property
    def f1(self) -> Float64:
        """Harmonic mean of precision and recall: 2 hits / (offered + true)."""
        f1: Float64 = 2 * self.hits / np.maximum(self.offered + self.true, 1)
        return f1

    @cached_property
    def support(self) -> int:
        """In how many rows a label must be true to be judged: more where enough labels have it."""
        return next((least for least in ENOUGH if (self.true >= least).sum() >= 2 * SHOWN), 1)

    @cached_property
    def judged(self) -> Int64:
        """The labels with enough support, best first; of equals, the more frequent first."""
        labels = np.flatnonzero(self.true >= self.support)
        return labels[np.lexsort((labels, -self.true[labels], -self.f1[labels]))]

    def best(self) -> Int64:
        return self.judged[: min(SHOWN, (len(self.judged) + 1) // 2)]

    def worst(self) -> Int64:
        """Worst first, of equals the more frequent first; none that is among the best."""
        rest = self.judged[len(self.best()) :]
        return rest[np.lexsort((rest, -self.true[rest], self.f1[rest]))][:SHOWN]

    def most_missed(self) -> Int64:
        """The labels that are most often true and not offered, whatever their support."""
        missed = self.true - self.hits
        order = np.argsort(-missed, kind="stable")[:SHOWN]
        return order[missed[order] > 0]


def labels_section(run: Run) -> Html:
    """Tables of labels with their precision, recall and F1."""
    scores = LabelScores.load(run["evaluation"].directory)
    chosen = {"Best": scores.best(), "Worst": scores.worst(), "Most often missed": scores.most_missed()}
    names = label_names(run.dataset.directory, np.concatenate(list(chosen.values())).tolist())
    rank = max(run.options("evaluation")["ks"])
    return section(
        "labels",
        "Best and worst labels",
        element(
            "p",
            f"By F1 of precision and recall at {rank}, among the {count(len(scores.judged))} labels that are true in "
            f"at least {scores.support} of the {run.split} rows. Click a column's title to sort by it.",
        ),
        [[element("h3", title), _table(scores, labels, names)] for title, labels in chosen.items()],
    )


def _table(scores: LabelScores, labels: Int64, names: Mapping[int, str]) -> Html:
    if not len(labels):
        return note("None.")
    head = ["Label", "In train", "True", "Offered", "Hits", "Precision, %", "Recall, %", "F1, %"]
    return table(head, [_line(scores, label, names) for label in labels.tolist()], sortable=True)


def _line(scores: LabelScores, label: int, names: Mapping[int, str]) -> Sequence[Child]:
    true, offered, hits = int(scores.true[label]), int(scores.offered[label]), int(scores.hits[label])
    return [
        foreign(shorten(names[label], NAME)),
        count(int(scores.in_train[label])),
        count(true),
        count(offered),
        count(hits),
        percent(hits / offered if offered else None, 1),
        percent(hits / true if true else None, 1),
        percent(float(scores.f1[label]), 1),
    ]
