"""Train again, and let the better model serve."""

from __future__ import annotations

from functools import partial
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_pipeline
from tasks import settings
from tasks.champions import apply_decision, champion_parts, mark_challenger
from tasks.execution import add_to_result, completed, make_result, patiently
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.promote import comparison_markdown, comparison_recipe, read_comparison
from xcore.artifacts import ArtifactRef, Recipe
from xcore.inference.promotion import Promotion


class RetrainParams(PipelineParams):
    """Parameters of `retrain`."""

    promotion: Promotion = Field(Promotion(), description="When the new model replaces the champion.")

    def with_promotion_rows(self) -> RetrainParams:
        """The same with dev rows held out, where promotion needs them and the data has none."""
        return self.model_copy(update={"data": self.data.with_dev_rows()}) if self.promotion.split == "dev" else self


def plan_retrain(params: RetrainParams) -> Recipe:
    """The comparison of the model to train with the champion there is now; the evaluation where they are the same."""
    params = params.with_promotion_rows()
    plan = _plan_challenger(params)
    return _plan_comparison(plan, params) or plan.evaluation


def _plan_challenger(params: RetrainParams) -> LearningPlan:
    plan = plan_pipeline(params)
    params.data.need_split(params.promotion.split, "promotion.split")
    return plan


def _plan_comparison(plan: LearningPlan, params: RetrainParams) -> Recipe | None:
    """None where the model is the champion itself."""
    champion, problem = champion_parts(params.name)
    if champion and champion.model.id == plan.model.id:
        return None
    predictions = plan.predictions_of(params.promotion.split, max(params.promotion.k, *params.evaluation.ks))
    return comparison_recipe(predictions, plan.data.dataset, champion, problem, params.promotion, params.seed)


@task(cache_policy=NO_CACHE, persist_result=False)
def register_and_decide(name: str, model: ArtifactRef, run_id: str, decision: str, reason: str) -> dict[str, Any]:
    """Register a model as the challenger, and make it the champion if that was decided."""
    version, is_new = register(name, parts_of(model), run_id)
    mark_challenger(version)
    return apply_decision(version, decision, reason) | {"is_new": is_new}


@flow(name="retrain", flow_run_name="{params.run_name}")
def retrain(params: RetrainParams) -> Any:
    """Ingest what changed, train, compare with the champion on the same held-out rows, promote if it is better."""
    given, params = params, params.with_promotion_rows()
    plan = _plan_challenger(params)
    summary = make_result(plan.evaluation, "retrain", params)
    comparison = _plan_comparison(plan, params)
    facts: dict[str, Any] = {"decision": "keep", "reason": "it is the champion already"}
    rows: list[dict[str, Any]] = []
    unchanged = summary["nothing_changed"]
    if comparison:
        unchanged = add_to_result(comparison, plan.evaluation, params) and unchanged
        facts, rows = read_comparison(settings.store().open(comparison.ref).directory)
    page = comparison_markdown(facts, rows)
    patiently(partial(create_markdown_artifact, page, key="promotion", description=facts["reason"]))
    done = register_and_decide(params.name, plan.model.ref, summary["mlflow_run"], facts["decision"], facts["reason"])
    became = "is now the champion" if done["promoted"] else f"was not promoted; the champion is {done['champion']}"
    says = [f"Version {done['version']} of {params.name} {became}: {done['reason']}"]
    if params.data is not given.data:
        says.append(
            "The data has no dev rows: a tenth of the train rows was held out as dev, to compare the models on."
        )
    told = {
        "promotion": facts | done,
        "comparison": str(comparison.ref) if comparison else None,
        "nothing_changed": unchanged and not done["promoted"] and not done["is_new"],
        "says": says,
    }
    return completed(summary | told)
