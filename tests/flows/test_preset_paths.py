"""Relative paths of a preset."""

from pathlib import Path

import pytest

from flows.params import IngestParams
from flows.plans import plan_ingest
from flows.presets import load_params, preset_as_written

PRESET = """
name: laws
data:
  reader: {kind: csv, text: text, labels: labels, label_delimiter: ";"}
  train: [train.csv]
  test: [../elsewhere.csv]
"""


@pytest.fixture
def preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, other = tmp_path / "presets", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "laws.yaml").write_text(PRESET)
    (folder / "train.csv").write_text("text,labels\na b,x\nb c,y\n")
    (tmp_path / "elsewhere.csv").write_text("text,labels\nc d,x\n")
    monkeypatch.chdir(other)
    return folder / "laws.yaml"


def test_relative_paths_count_from_the_preset(preset: Path, tmp_path: Path) -> None:
    data = load_params(IngestParams, preset).data
    assert data.train == [tmp_path / "presets/train.csv"]
    assert data.test[0].samefile(tmp_path / "elsewhere.csv")


def test_a_path_that_names_nothing_there_counts_from_the_current_folder(preset: Path) -> None:
    (preset.parent / "train.csv").unlink()
    assert load_params(IngestParams, preset).data.train == [Path("train.csv")]


def test_a_name_that_no_file_system_takes_names_nothing_there(preset: Path) -> None:
    preset.write_text(PRESET.replace("train.csv", "a" * 5000))
    assert load_params(IngestParams, preset).data.train == [Path("a" * 5000)]


def test_paths_of_overrides_count_from_the_current_folder(preset: Path) -> None:
    Path("train.csv").write_text("text,labels\nq,x\n")
    changed = load_params(IngestParams, preset, ["data.train=[train.csv]"]).data
    assert changed.train == [Path("train.csv")]
    assert changed.test[0].is_absolute()


def test_a_deployment_of_the_preset_reads_the_same_files(preset: Path, tmp_path: Path) -> None:
    assert preset_as_written(IngestParams, preset)["data"]["train"] == [str(tmp_path / "presets/train.csv")]


def test_ids_do_not_depend_on_how_a_path_is_written(preset: Path) -> None:
    spelt = load_params(IngestParams, preset, ["data.train=[../other/../presets/train.csv]"])
    assert plan_ingest(spelt).id == plan_ingest(load_params(IngestParams, preset)).id
