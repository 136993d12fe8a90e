"""What a threshold on the score costs and gains, and how scores of right and wrong labels are distributed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcore.inference.thresholds import LabelThresholds
from xcore.numeric.matrices import Float64, Int64
from xcore.report.charts import Axis, bars, lines
from xcore.report.html import Child, Html, element, note, section, table
from xcore.report.label_tables import LabelScores
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
        *_chosen_on_dev(run, offers),
        _distribution(offers),
        note(
            "Precision and recall count all labels of all rows together (micro-averaged). True labels that were not "
            f"offered count as missed, so recall is at most {percent(curve.recall[-1], 1)}%."
        ),
    )


def _chosen_on_dev(run: Run, offers: Offers) -> list[Html]:
    """What thresholds that were chosen on dev rows do here: one for all labels, and one for each."""
    made = run.get("thresholds")
    if made is None:
        return []
    thresholds, rows = LabelThresholds.load(made.directory), list[list[Child]]()
    true_rows = LabelScores.load(run["evaluation"].directory).true
    for name, limits in (("one for all labels", thresholds.common), ("one for each label", thresholds.values)):
        kept = offers.score >= np.broadcast_to(np.float32(limits), thresholds.values.shape)[offers.label]
        n_kept, n_hits, n_true = int(kept.sum()), int((kept & offers.hit).sum()), int(offers.n_true.sum())
        micro = 2 * n_hits / max(n_kept + n_true, 1)
        each = label_f1(offers, kept, true_rows)
        rates = (n_hits / max(n_kept, 1), n_hits / max(n_true, 1), micro, each)
        rows.append([name, *(percent(rate, 1) for rate in rates), mean(n_kept / max(len(offers.n_true), 1))])
    n_own = count(run.counts("thresholds").get("labels_with_own", 0))
    return [
        element(
            "p",
            f"Thresholds that were chosen on dev rows, measured on the {run.split} rows. {n_own} labels have a "
            "threshold of their own; the others share the one for all labels.",
        ),
        table(["Thresholds", "Precision, %", "Recall, %", "Micro F1, %", "Macro F1, %", "Labels per row"], rows),
    ]


def label_f1(offers: Offers, kept: npt.NDArray[np.bool_], n_true: Int64) -> float:
    """Mean F1 of the labels that are kept or true somewhere; `n_true` is in how many rows each label is true."""
    n_kept = np.bincount(offers.label[kept], minlength=len(n_true))
    n_hits = np.bincount(offers.label[kept & offers.hit], minlength=len(n_true))
    either = n_kept + n_true
    f1 = 2 * n_hits[either > 0] / either[either > 0]
    return float(f1.mean()) if len(f1) else 0.0


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
