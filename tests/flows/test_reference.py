"""Every option is in the reference, and a wrong name is answered with the right ones."""

from pathlib import Path

import pytest

from flows.catalogue import FLOWS
from flows.option_commands import show_options
from flows.presets import load_params
from flows.reference import find_place, reference_markdown
from xcore.errors import ConfigError
from xcore.models.family import MODEL_KINDS

ROOT = Path(__file__).parents[2]
PARAMS = FLOWS["pipeline"].params
BASE = ("name=x", "data.reader.kind=generated")


def test_the_reference_is_current() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    assert page == reference_markdown(), "make it again: eyrie options --markdown > docs/reference.md"


def test_every_kind_of_model_and_its_options_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(find_place("model").kinds) == list(MODEL_KINDS)
    for kind, model in MODEL_KINDS.items():
        names = [row[0] for row in find_place(f"model.{kind}").rows()]
        assert names == [name for name in model.model_fields if name != "kind"]
    assert show_options("model.parabel", markdown=False) == 0
    assert "n_trees" in capsys.readouterr().out


def test_options_within_options_and_of_a_flow_can_be_asked_for() -> None:
    assert "dimensions" in find_place("model.negative-sampling.embedding.pca").children
    assert "label_delimiter" in find_place("data.reader.csv").children
    assert "k" in find_place("score.cut").children


def test_a_wrong_path_is_answered_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"model: there is no 'parabell'; did you mean 'parabel'\? There is: ova, "):
        find_place("model.parabell")


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match=r"model\.parabel\.n_tres: .*; did you mean 'n_trees'\? Options here: "):
        load_params(PARAMS, None, [*BASE, "model.kind=parabel", "model.n_tres=3"])
    with pytest.raises(ConfigError, match=r"sead: .*; did you mean 'seed'\?"):
        load_params(PARAMS, None, [*BASE, "sead=3"])


def test_a_misspelt_kind_is_answered_with_all_kinds_and_the_likeliest() -> None:
    likeliest = r"model: there is no kind 'negative-samplin'; did you mean 'negative-sampling'\? Kinds here: ova"
    with pytest.raises(ConfigError, match=likeliest):
        load_params(PARAMS, None, [*BASE, "model.kind=negative-samplin"])


def test_a_missing_kind_is_answered_with_all_kinds() -> None:
    message = r"model: no kind is given, got .*n_trees.*\. Kinds here: ova"
    with pytest.raises(ConfigError, match=message):
        load_params(PARAMS, None, [*BASE, "model={n_trees: 3}"])
    with pytest.raises(ConfigError, match=r"grouping: no kind is given, got .*\. Kinds here: .*random"):
        load_params(PARAMS, None, [*BASE, "grouping={size: 3}"])
