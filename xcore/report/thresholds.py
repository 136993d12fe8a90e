"""What a threshold on the score costs and gains, and how scores of right and wrong labels are distributed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcore.numeric.matrices import Float64
from xcore.report.charts import Axis, bars, lines
from xcore.report.html import Html, element, note, section, table
from xcore.report.offers import Offers
from xcore.report.run import Run
from xcore.report.wording import count, mean, percent, score

POINTS = 60
BINS = 20
SHOWN = 7


@dataclass(frozen=True)
class Curve:
    """Precision and recall of the labels with at least a score, at scores that are evenly spaced among the offers."""

    threshold: Float64
    precision: Float64
    recall: Float64
    kept: Float64

    @classmethod
    def of(cls, offers: Offers) -> Curve:
        """Micro-averaged over all rows. A true label that was not offered counts as missed. Cost O(m log m)."""
        order = np.argsort(-offers.score.astype(np.float64), kind="stable")
        scores, hits = offers.score[order].astype(np.float64), np.cumsum(offers.hit[order])
        last = np.append(np.diff(scores) != 0, True)  # labels of one score are kept together
        ends = np.flatnonzero(last)
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, POINTS).round().astype(int))]
        kept = (ends + 1).astype(np.float64)
        recall = hits[ends] / max(int(offers.n_true.sum()), 1)
        return cls(scores[ends], hits[ends] / kept, recall, kept / max(len(offers.n_true), 1))

    @property
    def f1(self) -> Float64:
        total = self.precision + self.recall
        f1: Float64 = 2 * self.precision * self.recall / np.where(total > 0, total, 1.0)
        return f1


def thresholds_section(run: Run, offers: Offers) -> Html | None:
    """Precision against recall, a table of thresholds, and the distribution of scores; None without any offer."""
    if not len(offers.score):
        return None
    curve = Curve.of(offers)
    best = int(np.argmax(curve.f1))
    chosen = np.unique(np.append(np.linspace(0, len(curve.threshold) - 1, SHOWN).round().astype(int), best))
    rows = [
        [
            score(curve.threshold[at]),
            percent(curve.precision[at], 1),
            percent(curve.recall[at], 1),
            percent(curve.f1[at], 1),
            mean(curve.kept[at]),
            "highest F1" if at == best else "",
        ]
        for at in chosen.tolist()
    ]
    k = int(run.options("predictions")["k"])
    return section(
        "thresholds",
        "Thresholds",
        element(
            "p",
            f"What a threshold on the score would do, over all {count(len(offers.n_true))} {run.split} rows with at "
            f"most {k} labels per row. The threshold with the highest F1 on these rows is "
            f"{score(curve.threshold[best])}: choose one on other rows than those you report.",
        ),
        _precision_recall(curve),
        table(["Threshold", "Precision, %", "Recall, %", "F1, %", "Labels per row", ""], rows),
        _distribution(offers),
        note(
            "Precision and recall count all labels of all rows together (micro-averaged). True labels that were not "
            "offered count as missed, so recall cannot reach 100%."
        ),
    )


def _precision_recall(curve: Curve) -> Html:
    points = list(zip(curve.recall.tolist(), curve.precision.tolist(), strict=True))
    most = max(float(curve.recall.max()), 0.01)
    return lines(
        "Precision against recall, from a high threshold (left) to none (right)",
        {"precision": points},
        x=Axis("recall", 0.0, most, share=True),
        y=Axis("precision", 0.0, 1.0, share=True),
    )


def _distribution(offers: Offers) -> Html:
    scores = offers.score.astype(np.float64)
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    of_all = max(len(scores), 1)
    shares = {
        name: (np.histogram(scores[chosen], edges)[0] / of_all).tolist()
        for name, chosen in (("true labels", offers.hit), ("other labels", ~offers.hit))
    }
    names = [str(score(edge)) if at % 4 == 0 else "" for at, edge in enumerate(edges[:-1].tolist())]
    return bars(
        "Scores of the offered labels", names, shares, x="score (lower end of each bar)", y="share of the offers"
    )
