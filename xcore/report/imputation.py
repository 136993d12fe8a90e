"""How far imputed labels can be trusted: against the truth where it is known, and on held-out groups."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcore.components import flatten
from xcore.numeric.matrices import Float64, Int64
from xcore.report.charts import Axis, bars, lines
from xcore.report.group_sizes import group_sizes_table
from xcore.report.html import Child, Html, element, facts, foreign, markup, note, section, table
from xcore.report.rows import batches, in_step, lists, named_in
from xcore.report.run import Run
from xcore.report.wording import MOST_ITEMS, component, count, number, percent, plain, words

N_BINS = 10
TOLD_ELSEWHERE = ("imputer", "counts")
MEASURES = {
    "precision": ("Precision", "of the imputed labels, the share that is true"),
    "recall": ("Recall", "of the true labels, the share that was imputed"),
    "expected_recall": ("Expected recall", "confidence given to true labels, as a share of them"),
    "calibration_error": ("Calibration error", "mean distance between confidence and the share that is true"),
    "group_agreement": (
        "Agreement",
        "share of held-out groups' label counts that is reproduced; of sets, beyond chance",
    ),
    "estimated_precision_at_1": (
        "Estimated P@1",
        "share of the rows whose best label is their own, as groups alone let us estimate it; too high if groups hold "
        "similar rows",
    ),
    "estimated_precision_at_1_error": ("Its standard error", "of the estimated P@1, because few groups are held out"),
    "lead": ("Lead", "its difference from the chosen one"),
    "standard_error": ("Standard error", "of the lead"),
    "group_precision": ("Precision in groups", "of the label counts given to held-out groups, the share that is true"),
}


def imputation_section(run: Run) -> Html | None:
    """Counts, quality and confidences of the imputed labels; None where rows were learnt from as they came."""
    imputed = run.get("imputed")
    if imputed is None:
        return None
    details = json.loads((imputed.directory / "details.json").read_text())
    quality = json.loads((imputed.directory / "quality.json").read_text())
    truth, groups = _truth(run), run.get("groups")
    bins = ConfidenceBins.of(imputed.directory, truth)
    return section(
        "imputation",
        "Imputation",
        element("p", f"The labels of groups were given to single rows by {component(run.options('imputed'))}."),
        _quality(quality),
        facts(_counted(run, details)),
        group_sizes_table(groups.directory, imputed.directory, truth) if groups and truth else None,
        _trials(details),
        bins.reliability_chart(),
        bins.distribution_chart(),
    )


def quality_sentence(run: Run) -> str | None:
    """One line for the top of the page."""
    imputed = run.get("imputed")
    if imputed is None:
        return None
    imputer = str(run.options("imputed").get("kind", "imputation"))
    quality = json.loads((imputed.directory / "quality.json").read_text())
    if "precision" not in quality:
        said = f"Trained on labels that {imputer} imputed from groups; the rows' own labels are not known."
        guess = quality.get("estimated_precision_at_1")
        told = f"Held-out groups let us estimate that the best label is right in {percent(guess, 1)}% of the rows."
        return said if guess is None else f"{said} {told}"
    shares = f"{percent(quality['precision'], 1)}% of them are true, and {percent(quality.get('recall'), 1)}%"
    return f"Trained on labels that {imputer} imputed from groups: {shares} of the true ones were found."


@dataclass(frozen=True)
class ConfidenceBins:
    """Imputed labels in bins of confidence of equal width.

    Attributes
    ----------
    n : int64 (N_BINS,)
        Imputed labels.
    confidence : float64 (N_BINS,)
        The sum of their confidences.
    true : int64 (N_BINS,) or None
        How many of them are true; None where that is not known.
    """

    n: Int64
    confidence: Float64
    true: Int64 | None

    @classmethod
    def of(cls, directory: Path, truth: Path | None) -> ConfidenceBins:
        """Counted batch by batch."""
        n, true, confidence = np.zeros(N_BINS, np.int64), np.zeros(N_BINS, np.int64), np.zeros(N_BINS)
        claims = batches(directory / "labels.parquet", ["labels", "confidence"])
        rows_known = in_step(claims, batches(truth, ["labels"])) if truth else ((batch,) for batch in claims)
        for batch, *known in rows_known:
            rows, labels = lists(batch, "labels")
            _, values = lists(batch, "confidence")
            bin_of = np.minimum((values * N_BINS).astype(np.int64), N_BINS - 1)
            n += np.bincount(bin_of, minlength=N_BINS)
            confidence += np.bincount(bin_of, values, N_BINS)
            for right in known:
                true += np.bincount(bin_of[named_in(rows, labels, *lists(right, "labels"))], minlength=N_BINS)
        return cls(n, confidence, true if truth else None)

    def reliability_chart(self) -> Html | None:
        """Share of true labels against confidence."""
        if self.true is None or not self.n.sum():
            return None
        used = np.flatnonzero(self.n)
        points = [(self.confidence[i] / self.n[i], self.true[i] / self.n[i]) for i in used.tolist()]
        x, y = Axis("mean confidence", 0, 1, share=True), Axis("share that is true", 0, 1, share=True)
        ends = [wilson_interval(int(self.true[i]), int(self.n[i])) for i in used.tolist()]
        chart = lines(
            "Reliability: is confidence what it says?",
            {"imputed labels": points},
            x=x,
            y=y,
            diagonal=True,
            intervals={"imputed labels": ends},
        )
        says = (
            "On the dashed line a confidence is exactly the share of the labels that are true; below it, too high. "
            "Whiskers are 95% intervals: long where few labels have such a confidence."
        )
        return markup(chart, note(says))

    def distribution_chart(self) -> Html | None:
        """How many imputed labels have which confidence."""
        total = int(self.n.sum())
        if not total:
            return None
        names = [f"{i * 100 // N_BINS}–{(i + 1) * 100 // N_BINS}%" for i in range(N_BINS)]
        shares = {"imputed labels": (self.n / total).tolist()}
        title = f"Confidence of {count(total)} imputed labels"
        return bars(title, names, shares, x="confidence", y="share of the imputed labels")


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share by Wilson's score, which stays within 0 and 1 and holds for small n."""
    z2 = 1.96**2
    middle, half = hits + z2 / 2, 1.96 * math.sqrt(hits * (n - hits) / n + z2 / 4)
    return max(0.0, (middle - half) / (n + z2)), min(1.0, (middle + half) / (n + z2))


def _truth(run: Run) -> Path | None:
    """The file with the rows' own labels in train, where they are known."""
    truth = run.dataset.directory / "train_truth.parquet"
    if truth.exists():
        return truth
    known = run.counts("dataset").get("label_nnz", {}).get("train", 0)
    return run.dataset.directory / "train.parquet" if known else None


def _quality(quality: Mapping[str, float]) -> Html:
    if not quality:
        return note(
            "The rows' own labels are not known, so nothing here says how many imputed labels are true. "
            "No group has two members, or too few groups have labels, so held-out groups cannot tell either."
        )
    names = [name for name in MEASURES if name in quality] + sorted(set(quality) - set(MEASURES))
    return table(["Measure", "%", ""], [_measure(name, quality[name]) for name in names])


def _measure(name: str, value: float) -> Sequence[Child]:
    title, says = MEASURES.get(name, (words(name), ""))
    return [title, percent(value), element("span", says, class_="soft")]


def _counted(run: Run, details: Mapping[str, Any]) -> Iterable[tuple[Child, Child]]:
    """What the imputer counted, and what it has to say besides."""
    counts = {**details.get("counts", {}), **run.counts("imputed")}
    for name, value in counts.items():
        if not name.startswith("truth_"):
            yield words(name), count(value)
    said = details.get("chosen", details)
    for name, value in flatten({key: value for key, value in said.items() if key not in TOLD_ELSEWHERE}).items():
        yield words(name), number(value) if isinstance(value, float | int) else foreign(plain(value))


def _trials(details: Mapping[str, Any]) -> Html | None:
    """The imputers that were tried, and how each explained groups that it had not seen."""
    trials = details.get("trials")
    if not trials:
        return None
    measures = [name for name in trials[0] if name not in ("imputer", "confidence")]
    chosen = details.get("chosen", {}).get("imputer")
    rows: list[Sequence[Child]] = []
    for trial in trials[:MOST_ITEMS]:
        is_chosen = trial["imputer"] == chosen and trial.get("lead", 0) == 0
        reading = f", confidence as {trial['confidence']}" if "confidence" in trial else ""
        name = foreign(component(trial["imputer"]) + reading)
        shares = [percent(trial.get(measure)) for measure in measures]
        rows.append([element("strong" if is_chosen else "span", name), *shares, "chosen" if is_chosen else ""])
    says = [f"{MEASURES[name][0]}: {MEASURES[name][1]}. " for name in measures if name in MEASURES]
    titles = [f"{MEASURES.get(name, (words(name),))[0]}, %" for name in measures]
    return markup(
        element("h3", "Imputers tried on held-out groups"),
        element("p", "Each was judged by a model that was trained on its labels, on groups that it had not seen."),
        table(["Imputer", *titles, ""], rows, sortable=True),
        note(says),
        *(element("p", foreign(doubt)) for doubt in details.get("doubts", [])),
    )
