from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from flows.catalogue import FLOWS
from flows.params import FlowParams
from flows.presets import load_params
from tests.workplace import ROOT
from xcore.components import Component, flatten
from xcore.errors import ConfigError


class Owl(Component):
    kind: Literal["owl"] = "owl"
    wings: int = Field(2, ge=0)


class Wren(Component):
    kind: Literal["wren"] = "wren"
    song: str = "short"


class Nest(FlowParams):
    name: str
    bird: Annotated[Owl | Wren, Field(discriminator="kind")] = Owl()
    eggs: tuple[int, ...] = ()


def preset(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "nest.yaml"
    path.write_text(text)
    return path


def test_overrides_win_over_the_preset(tmp_path: Path) -> None:
    path = preset(tmp_path, "name: a\nbird: {kind: owl, wings: 3}\neggs: [1, 2]\n")
    params = load_params(Nest, path, ["name=b", "bird.wings=4", "eggs.1=7"])
    assert params == Nest(name="b", bird=Owl(wings=4), eggs=(1, 7))


def test_changing_the_kind_drops_the_other_kinds_options(tmp_path: Path) -> None:
    path = preset(tmp_path, "name: a\nbird: {kind: owl, wings: 3}\n")
    assert load_params(Nest, path, ["bird.kind=wren", "bird.song=long"]).bird == Wren(song="long")
    assert load_params(Nest, path, ["bird.kind=owl"]).bird == Owl(wings=3)


def test_a_preset_is_not_needed() -> None:
    assert load_params(Nest, None, ["name=x", "bird.kind=wren"]).bird == Wren()


@pytest.mark.parametrize(
    "text", [",", ";", "|", "#", "-", ":", "&", "*", "%", "@", "`", ">", "?", "!", "\t", " ", "::"]
)
def test_a_delimiter_is_text_whatever_it_means_to_yaml(text: str) -> None:
    assert load_params(Nest, None, [f"name={text}"]).name == text


@pytest.mark.parametrize(
    ("text", "value"), [('"\\t"', "\t"), ("'#'", "#"), ("a: b: c", "a: b: c"), ("[x", "[x"), ("x=y", "x=y")]
)
def test_a_value_is_yaml_or_else_text(text: str, value: str) -> None:
    assert load_params(Nest, None, [f"name={text}"]).name == value


@pytest.mark.parametrize("text", ["63884945", "01234567", "6e884945", "12e45678", "1.10", "true"])
def test_what_looks_like_a_number_is_text_where_a_text_is_expected(text: str) -> None:
    params = load_params(Nest, None, [f"name={text}", "bird.kind=wren", f"bird.song={text}"])
    assert (params.name, params.bird) == (text, Wren(song=text))


def test_an_override_may_reach_into_what_is_null_in_the_preset(tmp_path: Path) -> None:
    assert load_params(Nest, preset(tmp_path, "name: a\nbird:\n"), ["bird.kind=wren"]).bird == Wren()


def test_environment_variables_are_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = preset(tmp_path, "name: ${EYRIE_TEST_NAME:-nobody}/x\n")
    monkeypatch.delenv("EYRIE_TEST_NAME", raising=False)
    assert load_params(Nest, path).name == "nobody/x"
    monkeypatch.setenv("EYRIE_TEST_NAME", "somebody")
    assert load_params(Nest, path).name == "somebody/x"
    with pytest.raises(ConfigError, match="EYRIE_TEST_OTHER is not set"):
        load_params(Nest, preset(tmp_path, "name: ${EYRIE_TEST_OTHER}\n"))


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("name: a\nbird: {kind: owl, wings: -1}\n", [], r"bird\.owl\.wings: .*greater than or equal to 0, got '-1'"),
        ("name: 63884945\n", [], "name: Input should be a valid string, got '63884945'. Write it in quotes"),
        ("name: 5\n", ["eggs=[1]"], "name: Input should be a valid string, got '5'. Write it in quotes"),
        ("name: a\nbird: {kind: crow}\n", [], "bird: there is no kind 'crow'.* Kinds here: owl, wren"),
        ("name: a\ncolour: red\n", [], "colour: Extra inputs are not permitted"),
        ("bird: {kind: owl}\n", [], "name: Field required"),
        ("name: a\n", ["bird"], "expected path=value"),
        ("name: a\n", ["name.x=1"], "name is 'a', expected a group of parameters"),
        ("name: a\n", ["name.x.y=1"], "name is 'a', expected a group of parameters"),
        ("name: a\n", ["bird..wings=1"], "expected path=value"),
        ("name: a\n", ["=1"], "expected path=value"),
        ("name: a\n", ["name="], "--set name=: no value, expected one after '='"),
        ("name: a\neggs: [1, 2]\n", ["eggs.2=7"], "'2' is not an item of the list, which has items 0 to 1"),
        ("name: a\neggs: [1, 2]\n", ["eggs.last=7"], "'last' is not an item of the list"),
        ("name: a\neggs: [1, 2]\n", ["eggs.-1=7"], "'-1' is not an item of the list"),
        ("name: a\neggs: []\n", ["eggs.0.x=7"], "'0' is not an item of the list, which has no items"),
        ("name: a\neggs: [1]\n", ["eggs.0.x=7"], r"eggs\.0 is 1, expected a group of parameters"),
        ("name: a\neggs: [1]\n", ["eggs.kind=7"], "'kind' is not an item of the list"),
        ("- a\n", [], "holds list, expected a mapping"),
        ("a: [\n", [], "is not YAML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_params(Nest, preset(tmp_path, text), overrides)


def test_what_a_whole_preset_gets_wrong_is_said_without_the_preset() -> None:
    changes = ["factors={model.kind: [ova, parabel]}", "compare_with={model.kind: eagle}", "name=x"]
    path = ROOT / "deployments/presets/demo.yaml"
    with pytest.raises(ConfigError) as told:
        load_params(FLOWS["study"].params, path, changes)
    first, second = str(told.value).splitlines()
    assert first.endswith("cannot be used:")
    assert second == "  compare_with.model.kind: got eagle, expected one of the factor's: ova, parabel"


def test_a_list_of_wrong_items_is_not_called_too_short_as_well() -> None:
    class Colony(FlowParams):
        eggs: tuple[int, ...] = Field(min_length=1)

    with pytest.raises(ConfigError) as caught:
        load_params(Colony, None, ["eggs=[three]"])
    assert "eggs.0" in str(caught.value)
    assert "at least 1" not in str(caught.value)


def test_a_message_of_thousands_of_problems_is_cut(tmp_path: Path) -> None:
    text = "name: a\n" + "".join(f"k{number}: 1\n" for number in range(40_000))
    with pytest.raises(ConfigError) as caught:  # asked again for every name, the schema took hours
        load_params(Nest, preset(tmp_path, text))
    assert "k19: Extra inputs are not permitted" in str(caught.value)
    assert str(caught.value).endswith("and 39,980 more")
    assert len(str(caught.value)) < 3_000


def test_a_missing_preset_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"preset not found: .*nowhere\.yaml"):
        load_params(Nest, tmp_path / "nowhere.yaml")


def test_a_preset_of_a_flow_that_takes_more_serves_the_smaller_flow(tmp_path: Path) -> None:
    class Tree(Nest):
        height: int = 1

    path = preset(tmp_path, "name: a\nheight: 3\n")
    assert load_params(Nest, path, written_for=Tree) == Nest(name="a")
    with pytest.raises(ConfigError, match="height: Extra"):
        load_params(Nest, path)
    with pytest.raises(ConfigError, match="height: Extra"):
        load_params(Nest, path, ["height=2"], written_for=Tree)
    with pytest.raises(ConfigError, match="hight: Extra"):
        load_params(Nest, preset(tmp_path, "name: a\nhight: 3\n"), written_for=Tree)


def test_the_run_table_shows_what_is_used_and_what_is_unusual() -> None:
    demo = load_params(
        FLOWS["retrain"].params, ROOT / "deployments" / "presets" / "demo.yaml", ["promotion.margin=0.1"]
    )
    with_imputer = flatten(demo.tracked_parameters({"dataset", "groups", "imputed", "model"}))
    assert {"seed", "data.reader.kind", "imputer.kind", "model.kind", "promotion.margin"} <= with_imputer.keys()
    assert not [name for name in with_imputer if name.startswith(("text.", "evaluation.")) or name == "name"]
    assert "data.reader.n_train" not in with_imputer, "as usual"
    plain = flatten(demo.tracked_parameters({"dataset", "features", "model"}))
    assert "text.kind" in plain
    assert not [name for name in plain if name.startswith("imputer.")]


@pytest.mark.parametrize("flow", FLOWS)
def test_no_flow_takes_a_name_that_leaves_the_work_folder(flow: str) -> None:
    with pytest.raises(ConfigError, match=r"name: .*'\.\./\.\./x' cannot be a name \('/' is not allowed\)"):
        load_params(FLOWS[flow].params, None, ["name=../../x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\n", "line 2: the key 'name' stands twice"),
        ("name: a\nbird: {kind: owl, wings: 1, wings: 2}\n", "'wings' stands twice"),
        (f"name: a\nseed: {'9' * 5000}\n", "cannot be read"),
        ("name: a\nseed: 2001-99-99\n", "cannot be read"),
        ('name: "\\ud800"\n', "half of a character"),
        ('name: "a\\0b"\n', "NUL"),
        ("name: " + "[" * 2000, "values inside values without end"),
        ("name: &a [*a]\n", "values inside values without end"),
        (
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)),
            "anchors",
        ),
    ],
)
def test_a_preset_that_loses_or_multiplies_values_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_params(Nest, preset(tmp_path, text))


def test_a_folder_or_a_huge_file_in_place_of_a_preset_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="preset is a folder"):
        load_params(Nest, tmp_path)
    with pytest.raises(ConfigError, match="preset too large"):
        load_params(Nest, preset(tmp_path, "# " + "x" * (1 << 20)))


@pytest.mark.parametrize(
    "override",
    [
        "eggs.٠=1", f"eggs.{'9' * 5000}=1", "bird.kind=[1]", "bird.kind={a: 1}", f"name={'9' * 5000}",
        "a" + ".a" * 9000 + "=1", "eggs=[[1]]", "\ud800=1", "bird=[1]", "bird.kind.x=1", "eggs.0.x=1", "name=\ud800",
        "seed=!!python/object:os.system x", "bird.wings=.nan", "eggs=&a [*a]", "evaluation.ks=[0]",
    ],
)  # fmt: skip
def test_a_wrong_override_is_one_message(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError):
        load_params(Nest, preset(tmp_path, "name: a\neggs: [1]\n"), [override])


def test_ranks_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.ks\.0"):
        load_params(FLOWS["pipeline"].params, ROOT / "deployments/presets/demo.yaml", ["evaluation.ks=[0]"])
