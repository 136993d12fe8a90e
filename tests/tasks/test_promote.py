"""The comparison as an artifact: every case ends in a decision, a reason and a table."""

from pathlib import Path
from typing import Any

import pytest

from tasks import settings
from tasks.model_parts import parts_of
from tasks.predict import predictions_recipe
from tasks.promote import comparison_markdown, comparison_recipe, read_comparison
from tests.small_models import made_model
from xcore.artifacts import Recipe
from xcore.inference.promotion import Promotion
from xcore.models.ova import Ova


@pytest.fixture
def challenger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EYRIE_STORE", raising=False)
    return made_model(Ova(), "text", tmp_path / "source")


def decided(challenger: Recipe, champion: Recipe | None, problem: str = "", **options: Any) -> tuple[Any, Any]:
    predictions = predictions_recipe(challenger, "test", 5)
    promotion = Promotion.model_validate({"metric": "precision_at_1", "n_bootstrap": 200, "split": "test"} | options)
    parts = parts_of(champion.ref) if champion else None
    recipe = comparison_recipe(predictions, challenger.inputs["dataset"], parts, problem, promotion, 0)
    settings.store().make(predictions)
    facts, rows = read_comparison(settings.store().make(recipe).artifact.directory)
    assert facts["reason"] in comparison_markdown(facts, rows)
    return facts, rows


def test_the_first_model_is_promoted(challenger: Recipe) -> None:
    facts, rows = decided(challenger, None)
    assert (facts["decision"], rows) == ("promote", [])


def test_a_far_worse_champion_is_replaced_and_a_like_one_is_not(challenger: Recipe, tmp_path: Path) -> None:
    blunt = made_model(Ova(ridge=0.1, prune=0.9), "text", tmp_path / "source")
    facts, rows = decided(challenger, blunt)
    assert facts["decision"] == "promote"
    assert facts["rows"] == 30
    assert rows[0]["challenger"] > rows[0]["champion"]
    like = made_model(Ova(ridge=0.1001), "text", tmp_path / "source")
    assert decided(challenger, like)[0]["decision"] == "keep"


@pytest.mark.parametrize("choice", ["keep", "promote"])
def test_what_cannot_be_compared_follows_the_parameter_and_says_why(
    challenger: Recipe, tmp_path: Path, choice: str
) -> None:
    champion = made_model(Ova(), "sparse", tmp_path / "source")
    facts, rows = decided(challenger, champion, if_not_comparable=choice)
    assert (facts["decision"], rows) == (choice, [])
    assert "not comparable: the champion takes sparse rows, the new dataset has text rows" in facts["reason"]
    facts, _ = decided(challenger, None, problem="it is gone", if_not_comparable=choice)
    assert (facts["decision"], facts["reason"]) == (
        choice,
        f"not comparable: it is gone; if_not_comparable says {choice}",
    )
