"""Compare a new model with the one in use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from tasks.score import ModelParts, UsedModel, open_scorer
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.inference.promotion import (
    SCHEMA,
    NotComparable,
    Promotion,
    Verdict,
    champion_ranking,
    compare,
    fair_rows,
    label_numbers,
)
from xcore.numeric.matrices import NO_LABEL, TopK

REPORT = "comparison.json"


class Comparison(Component):
    """How the challenger is compared, and which components open the champion."""

    promotion: Promotion
    champion: UsedModel | None = Field(None, description="The champion. Empty: there is none, or it cannot be opened.")
    problem: str = Field("", description="Why the champion cannot be opened, if there is one.")


def compare_models(context: BuildContext) -> Mapping[str, Any]:
    """The challenger against the champion on the same held-out rows: metrics, a decision and its reason."""
    options: Comparison = context.options
    challenger = context.inputs["predictions"].manifest.inputs["model"].id
    facts: dict[str, Any] = {"challenger": challenger, **options.promotion.options()}
    table = SCHEMA.empty_table()
    try:
        if options.problem:
            raise NotComparable(options.problem)
        if options.champion is None:
            facts |= {"decision": "promote", "reason": "there was no champion to compare with"}
        else:
            verdict, judged = _judge(context, options.champion)
            facts |= judged | _decision(verdict, options.promotion)
            table = verdict.table
    except NotComparable as reason:
        said = f"not comparable: {reason}; if_not_comparable says {options.promotion.if_not_comparable}"
        facts |= {"decision": options.promotion.if_not_comparable, "reason": said}
    (context.directory / REPORT).write_text(json.dumps(facts, indent=1, sort_keys=True))
    pq.write_table(table, context.directory / "metrics.parquet")
    return facts


def _judge(context: BuildContext, champion: UsedModel) -> tuple[Verdict, dict[str, Any]]:
    """The verdict, and what it rests on."""
    promotion: Promotion = context.options.promotion
    dataset = Dataset(context.inputs["dataset"].directory)
    trained_on = Dataset(context.inputs["champion-dataset"].directory)
    scorer = open_scorer(champion, context.inputs, "champion-")
    ranking = pq.read_table(context.inputs["predictions"].directory / "predictions.parquet")
    challenger = TopK.from_table(ranking, _width(context))
    incumbent = champion_ranking(scorer, dataset, promotion.split, challenger.k)
    rows = np.flatnonzero(fair_rows(trained_on, dataset, promotion.split))
    labels = dataset.label_table()
    verdict = compare(
        TopK(challenger.labels[rows], challenger.scores[rows]),
        TopK(incumbent.labels[rows], incumbent.scores[rows]),
        dataset.Y(promotion.split)[rows],
        promotion,
        train_counts=labels["train_count"].to_numpy(),
        n_train=dataset.n_rows("train"),
        rng=context.rng,
    )
    return verdict, {
        "champion": context.inputs["champion-model"].ref.id,
        "rows": len(rows),
        "rows_that_one_model_trained_on": len(challenger) - len(rows),
        "labels_gone": int((label_numbers(scorer.label_ids, labels["id"]) == NO_LABEL).sum()),
        "labels_new": int((label_numbers(labels["id"], scorer.label_ids) == NO_LABEL).sum()),
    }


def _width(context: BuildContext) -> int:
    """The rank to which both are ranked: that of the challenger's predictions."""
    return int(context.inputs["predictions"].manifest.options["k"])


def _decision(verdict: Verdict, promotion: Promotion) -> dict[str, Any]:
    first = verdict.table.slice(0, 1).to_pylist()[0]
    by = f" by more than {promotion.margin:g}" if promotion.margin else ""
    said = (
        f"{promotion.metric} {first['challenger']:.4f} against {first['champion']:.4f}: better{by} in "
        f"{verdict.share_above_margin:.1%} of resamples, wanted {promotion.confidence:.1%}"
    )
    named = {key: first[key] for key in ("difference", "low", "high")}
    return {
        "decision": "promote" if verdict.better else "keep",
        "reason": said,
        "share_above_margin": verdict.share_above_margin,
        **named,
    }


def comparison_recipe(
    predictions: Recipe,
    dataset: Recipe,
    champion: ModelParts | None,
    problem: str,
    promotion: Promotion,
    seed: int,
) -> Recipe:
    """A challenger, by its predictions of the held-out split, against the champion, if there is one."""
    options = Comparison(promotion=promotion, champion=champion.used if champion else None, problem=problem)
    inputs = (champion.inputs("champion-") if champion else {}) | {"predictions": predictions, "dataset": dataset}
    return Recipe("comparison", compare_models, options, inputs, seed=seed)


def read_comparison(directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The decision of a finished comparison, the facts behind it, and a table with one row per metric."""
    facts: dict[str, Any] = json.loads((directory / REPORT).read_text())
    return facts, pq.read_table(directory / "metrics.parquet").to_pylist()


def comparison_markdown(facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """A comparison for people to read."""
    lines = [f"**{facts['decision'].capitalize()}**: {facts['reason']}", ""]
    if rows:
        lines += ["| metric | champion | challenger | difference | 95% interval |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        interval = f"{row['low']:+.4f} to {row['high']:+.4f}"
        values = f"{row['champion']:.4f} | {row['challenger']:.4f} | {row['difference']:+.4f}"
        lines.append(f"| {row['metric']} | {values} | {interval} |")
    if "rows" in facts:
        left_out = facts["rows_that_one_model_trained_on"]
        said = f"{left_out:,} more left out, since one of the two models was trained on them"
        labels = f"Labels gone: {facts['labels_gone']:,}, new: {facts['labels_new']:,}."
        lines += ["", f"{facts['rows']:,} rows of {facts['split']}; {said}. {labels}"]
    return "\n".join(lines)
