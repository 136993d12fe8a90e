"""The page: the headline, the sections in the order in which people ask, and a policy that forbids all network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from xcore.artifacts import Artifact
from xcore.report.assets import SCRIPT, STYLE
from xcore.report.bags import bags_section
from xcore.report.beside import Beside, champion_section, curves_section
from xcore.report.data import data_section, train_counts_of
from xcore.report.examples import examples_section
from xcore.report.html import Html, element, markup, raw
from xcore.report.imputation import imputation_section, quality_sentence
from xcore.report.label_tables import labels_section
from xcore.report.members import members_section
from xcore.report.mistakes import mistakes_section
from xcore.report.offers import Offers
from xcore.report.results import Results, deciles_section, metrics_section, tiles
from xcore.report.run import Run, cost_section, lineage_section, options_section
from xcore.report.thresholds import thresholds_section
from xcore.report.wording import component, count, shorten

TITLES = {
    "run": "What was run",
    "data": "Data",
    "imputation": "Imputation",
    "metrics": "Metrics",
    "champion": "Champion",
    "training": "Learning curve",
    "deciles": "By frequency",
    "thresholds": "Thresholds",
    "mistakes": "Weak spots",
    "bags": "Bags",
    "labels": "Labels",
    "members": "Side by side",
    "examples": "Examples",
    "cost": "Cost",
    "lineage": "Lineage",
}


def render_report(lineage: Sequence[Artifact], target: Path, beside: Beside | None = None) -> None:
    """Write the report of a pipeline run: one HTML file that needs nothing else.

    Parameters
    ----------
    lineage : sequence of Artifact
        The opened artifacts that led to an evaluation, inputs first, the evaluation last.
    target : Path
        The file to write. The same arguments give the same bytes.
    beside : Beside, optional
        The experiment's name, the champion and the learning curves, which are not part of the artifacts.

    Notes
    -----
    The page is some 100 kB whatever the size of the data: lists are cut, curves are thinned out, and examples are few.
    Its content security policy lets the browser load nothing, and run no script but the one that sorts tables.

    Cost O(rows + label entries of all splits + L): label lists are read batch by batch, names and texts only of the
    rows that are shown. Memory O(L + labels offered to the rows of the measured split) and one batch.
    """
    run = Run(lineage)
    results, train_counts = Results.load(run["evaluation"].directory), train_counts_of(run)
    offers, beside = Offers.of(run), beside or Beside()
    sections = {
        "run": options_section(run),
        "data": data_section(run, train_counts),
        "imputation": imputation_section(run),
        "metrics": metrics_section(run, results),
        "champion": champion_section(results, beside.champion),
        "training": curves_section(beside.curves),
        "deciles": deciles_section(run),
        "thresholds": thresholds_section(run, offers),
        "mistakes": mistakes_section(run, offers, results),
        "bags": bags_section(run),
        "labels": labels_section(run),
        "members": members_section(run, offers),
        "examples": examples_section(run),
        "cost": cost_section(run),
        "lineage": lineage_section(run),
    }
    shown = {key: content for key, content in sections.items() if content is not None}
    title = f"{shorten(beside.name or run.data_name, 80)} · {run.model_name}"
    header = _headline(title, run, results)
    body = element("body", header, _contents(shown), element("main", shown.values()), raw("script", SCRIPT))
    page = markup(Html("<!DOCTYPE html>\n"), element("html", _head(title), body, lang="en"), "\n")
    target.write_text(page, encoding="utf-8", newline="\n")


def _head(title: str) -> Html:
    policy = (
        f"default-src 'none'; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        raw("style", STYLE),
    )


def _digest(content: str) -> str:
    """How a policy names the one inline style or script that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _headline(title: str, run: Run, results: Results) -> Html:
    warnings = [element("li", text) for text in _worth_knowing(run)]
    sentence = quality_sentence(run)
    return element(
        "header",
        element("h1", title),
        element("p", f"{_sizes(run)} Model: {component(run.options('model'))}."),
        element("p", sentence) if sentence else None,
        tiles(results),
        element("ul", warnings, class_="worth") if warnings else None,
    )


def _sizes(run: Run) -> str:
    dataset = run.dataset
    rows = f"{count(dataset.n_rows('train'))} rows to train on, {count(dataset.n_rows(run.split))} {run.split} rows"
    return f"{rows}, {count(dataset.n_labels)} labels."


def _worth_knowing(run: Run) -> Iterable[str]:
    """What a careful reader should have seen before trusting the numbers."""
    counts, judged, split = run.counts("dataset"), run.counts("evaluation"), run.split.capitalize()
    if counts.get("quarantined", {}).get("rows"):
        yield f"Rows set aside, for reasons given under Data: {count(counts['quarantined']['rows'])}."
    if counts.get("labels_not_in_train"):
        yield f"Labels without training rows, which no model can find: {count(counts['labels_not_in_train'])}."
    same = counts.get("rows_same_as_in_train", {}).get(run.split)
    if same:
        yield f"{split} rows with exactly the features of a train row: {count(same)}."
    if judged.get("rows_without_labels"):
        yield f"{split} rows without a true label, which score 0: {count(judged['rows_without_labels'])}."
    if any((manifest.git_commit or "").endswith("+changes") for manifest in run.manifests):
        yield "Some steps were run from source that was not committed."


def _contents(sections: dict[str, Html]) -> Html:
    links = [element("li", element("a", TITLES[key], href=f"#{key}")) for key in sections]
    return element("nav", element("ul", links), aria_label="Contents")
