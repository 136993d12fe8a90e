"""The examples that set-up compiles kernels with."""

import pytest

from flows.kernels import EXAMPLES, compile_for
from flows.params import PipelineParams
from flows.presets import load_params
from tests.workplace import ROOT


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_to_its_end_and_leaves_nothing_behind(name, tmp_path, monkeypatch):
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert compile_for(name) >= 0
    assert not list(tmp_path.iterdir())


def test_the_components_of_the_demo_are_among_the_examples():
    demo = load_params(PipelineParams, ROOT / "deployments/presets/demo.yaml")
    usual = {"kind": PipelineParams.model_fields["imputer"].default.kind}
    grouped = [one for examples in EXAMPLES.values() for one in examples if "group_size" in one["data"]["reader"]]
    assert demo.model.kind in {example["model"]["kind"] for example in grouped}
    assert demo.imputer.kind in {example.get("imputer", usual)["kind"] for example in grouped}
