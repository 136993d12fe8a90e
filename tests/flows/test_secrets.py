"""Secrets that parameters take from the environment are stored by the names of their variables."""

from pathlib import Path

import pytest

from flows.params import IngestParams
from flows.presets import load_params
from tasks.ingest import dataset_recipe


def test_a_secret_variable_is_stored_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "hunter2hunter2.txt"
    rows.write_text("0 0:1\n")
    preset = tmp_path / "preset.yaml"
    preset.write_text(
        f"data: {{reader: {{kind: libsvm}}, train: ['{tmp_path}/${{DB_PASSWORD}}.txt']}}\nname: ${{TITLE}}\n"
    )
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    monkeypatch.setenv("TITLE", "a title")
    params = load_params(IngestParams, preset)
    assert params.data.train == [rows], "the run itself sees the value"
    recipe = dataset_recipe(params.data, 0)
    stored = [
        params.options(),
        params.tracked_parameters({"dataset"}),
        recipe.options.options(),
        params.model_dump_json(),
    ]
    for tree in stored:
        assert "hunter2" not in str(tree)
        assert "${DB_PASSWORD}" in str(tree)
    assert "a title" in str(params.options()), "other variables are stored as what they stood for"
    assert IngestParams.model_validate(params.options()) == params, "what is stored can be run again"
