"""`eyrie init`: a preset for files that nobody described."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from flows.__main__ import main
from flows.catalogue import FLOWS
from flows.first_preset import guess_preset, write_first_preset
from flows.operations.declarations import deployment_of
from flows.presets import load_params
from xcore.errors import ConfigError

ROWS = [{"id": f"r{i}", "title": f"law number {i} of many", "tags": ["a", f"b{i % 3}"]} for i in range(20)]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_and_splits_of_jsonl_are_found(tmp_path: Path) -> None:
    train, test = jsonl(tmp_path / "train.jsonl", ROWS), jsonl(tmp_path / "test.jsonl", ROWS)
    guess = guess_preset([train, test])
    assert guess.reader == {"kind": "jsonl", "labels": "tags", "text": "title", "id": "id"}
    assert guess.files == {"train": [str(train)], "test": [str(test)]}


def test_delimiters_of_a_compressed_table_are_found(tmp_path: Path) -> None:
    path = tmp_path / "books.tsv.gz"
    path.write_bytes(gzip.compress(b"Body\tSubjects\nlong text here\tx|y\nmore text\ty\n"))
    reader = guess_preset([path]).reader
    assert reader == {"kind": "csv", "delimiter": "\t", "labels": "Subjects", "text": "Body", "label_delimiter": "|"}


def test_vectors_of_parquet_are_found(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [[0.5, 1.0], [1.0, 0.0]], "labels": [["a"], ["b"]]}), tmp_path / "v.parquet")
    assert guess_preset([tmp_path / "v.parquet"]).reader == {"kind": "parquet", "labels": "labels", "vector": "v"}


@pytest.mark.parametrize(("line", "kind"), [("2 3 4", "xmc"), ("1,2 0:1.5", "libsvm")])
def test_sparse_texts_are_told_apart_by_their_first_line(tmp_path: Path, line: str, kind: str) -> None:
    (tmp_path / "x.txt").write_text(f"{line}\n0 1:2\n")
    assert guess_preset([tmp_path / "x.txt"]).reader == {"kind": kind}


def test_the_preset_is_commented_and_the_pipeline_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "laws.yaml"
    assert write_first_preset([jsonl(tmp_path / "laws.jsonl", ROWS)], "laws", output, None, None) == 0
    params = load_params(FLOWS["pipeline"].params, output)
    assert (params.name, params.options()["data"]["holdout"]["test"]) == ("laws", 0.1)
    assert "#   labels: column 'tags'" in output.read_text()
    assert "text: column 'title', by its name" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="exists: it is not overwritten"):
        write_first_preset([tmp_path / "laws.jsonl"], "laws", output, None, None)


def test_a_wrong_column_is_answered_with_the_columns_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column 'txt'; its columns are: id, title, tags"):
        guess_preset([jsonl(tmp_path / "a.jsonl", ROWS)], text="txt")


def test_files_that_cannot_be_guessed_are_refused_with_a_way_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"n": 1, "m": 2}])
    with pytest.raises(ConfigError, match="Name one with --labels"):
        guess_preset([path])
    (tmp_path / "a.docx").write_text("x")
    with pytest.raises(ConfigError, match="its format is not known"):
        guess_preset([tmp_path / "a.docx"])


def test_the_command_writes_beside_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    jsonl(tmp_path / "laws.jsonl", ROWS)
    assert main(["init", "laws.jsonl"]) == 0
    assert yaml.safe_load((tmp_path / "laws.yaml").read_text())["name"] == "laws"
    assert "eyrie pipeline laws.yaml" in capsys.readouterr().out


def test_a_preset_becomes_a_deployment_without_prefect_yaml(tmp_path: Path) -> None:
    output = tmp_path / "laws.yaml"
    write_first_preset([jsonl(tmp_path / "laws.jsonl", ROWS)], "laws", output, None, None)
    deployment = deployment_of(output)
    assert (deployment.name, deployment.entrypoint) == ("pipeline-laws", "flows.pipeline.pipeline")
    assert "eyrie" not in deployment.tags, "`deploy` would remove it"
    assert deployment.run_parameters["params"]["name"] == "laws"
    with pytest.raises(ConfigError, match="did you mean 'retrain'"):
        deployment_of(output, "retrane")
