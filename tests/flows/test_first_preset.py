"""`eyrie init`: a preset for files that nobody described."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import yaml

from flows.__main__ import main
from flows.catalogue import FLOWS
from flows.first_preset import guess_preset, write_first_preset
from flows.operations.declarations import deployment_of
from flows.presets import load_params
from tasks.ingest import dataset_recipe
from xcore.artifacts import Artifact, Recipe
from xcore.errors import ConfigError, EyrieError

ROWS = [{"id": f"r{i}", "title": f"law number {i} of many", "tags": ["a", f"b{i % 3}"]} for i in range(20)]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_and_splits_of_jsonl_are_found(tmp_path: Path) -> None:
    train, test = jsonl(tmp_path / "train.jsonl", ROWS), jsonl(tmp_path / "test.jsonl", ROWS)
    guess = guess_preset([train, test])
    assert guess.reader == {"kind": "jsonl", "labels": "tags", "text": "title", "id": "id"}
    assert guess.files == {"train": [str(train)], "test": [str(test)]}


def test_an_id_differs_in_each_row_and_labels_are_no_text(tmp_path: Path) -> None:
    rows = [{"id": "same", "text": "a law", "name": [f"label {i}"]} for i in range(5)]
    assert "id" not in guess_preset([jsonl(tmp_path / "a.jsonl", rows)], labels="name").reader
    rows = [{"title": f"label of a law {i}", "n": "law"} for i in range(5)]
    reader = guess_preset([jsonl(tmp_path / "b.jsonl", rows)], labels="title").reader
    assert (reader["labels"], reader["text"]) == ("title", "n")


@pytest.mark.parametrize(
    ("cells", "id_column"),
    [
        (["apt", "bash", "libc6"], "package"),
        ([17, 3, 4], "package"),
        (["apt", "bash", "apt"], None),
        (["a b", "bash", "libc6"], None),
        ([1.5, 2.5, 3.5], None),
        (["x" * 101, "bash", "libc6"], None),
    ],
)
def test_a_first_column_of_short_different_values_is_the_id(
    tmp_path: Path, cells: list[Any], id_column: str | None
) -> None:
    rows = [{"package": cell, "description": f"tool number {i}", "tags": "a, b"} for i, cell in enumerate(cells)]
    reader = guess_preset([jsonl(tmp_path / "a.jsonl", rows)]).reader
    assert (reader.get("id"), reader["text"], reader["labels"]) == (id_column, "description", "tags")
    later = [{"description": row["description"], "package": row["package"], "tags": "a"} for row in rows]
    assert "id" not in guess_preset([jsonl(tmp_path / "b.jsonl", later)]).reader, "any other column may be a value"


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


@pytest.mark.parametrize(
    ("cells", "delimiter", "n_labels"),
    [
        (["a, b", "b, c", "a;x, c"] * 4, ",", 4),  # the frequent one, not the first of a list
        (["Topic 1", "Topic 2", "Other topic"] * 4, ";", 3),  # words of a name are no labels
        (["3 17", "17 4", "3 4", "4 3 17", "17 3"] * 4, " ", 3),
        ([3, 17, 4] * 4, ";", 3),
    ],
)
def test_delimiters_of_labels_are_the_frequent_ones(
    tmp_path: Path, make: Callable[[Recipe], Artifact], cells: list[Any], delimiter: str, n_labels: int
) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"text": f"some text {i}", "labels": cell} for i, cell in enumerate(cells)])
    assert guess_preset([path]).reader["label_delimiter"] == delimiter
    output = tmp_path / "a.yaml"
    write_first_preset([path], "a", output, None, None)
    source = load_params(FLOWS["pipeline"].params, output).data
    assert make(dataset_recipe(source, 0)).manifest.counts["labels"] == n_labels


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,labels\n1,some text,a\n2,more text,b\n", encoding="utf-8-sig")
    assert guess_preset([tmp_path / "a.csv"]).reader["id"] == "id"


def test_matrices_and_images_are_paired_with_their_labels(tmp_path: Path) -> None:
    names = ("X_train.npz", "Y_train.npz", "X_test.npz", "Y_test.npz")
    for name in names:
        sp.save_npz(tmp_path / name, sp.csr_array((4, 3)))
    paths = [str(tmp_path / name) for name in names]
    guess = guess_preset([tmp_path / name for name in reversed(names)])
    assert guess.files == {
        "train": [{"features": paths[0], "labels": paths[1]}],
        "test": [{"features": paths[2], "labels": paths[3]}],
    }
    with pytest.raises(ConfigError, match=r"got 1 with features \(X_test.npz\) and 0 with labels"):
        guess_preset([tmp_path / name for name in names[:3]])


def test_images_and_classes_are_found_by_their_content(tmp_path: Path) -> None:
    images, classes = tmp_path / "t10k-images", tmp_path / "train-a"
    images.write_bytes(b"\0\0\x08\3" + b"\0\0\0\1" * 3 + b"\7")
    classes.write_bytes(b"\0\0\x08\1" + b"\0\0\0\1" + b"\1")
    own = tmp_path / "train-b"
    own.write_bytes(images.read_bytes())
    guess = guess_preset([classes, own])
    assert guess.reader == {"kind": "idx"}
    assert guess.files == {"train": [{"features": str(own), "labels": str(classes)}]}


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


HOSTILE_FILES = {
    "cut.csv.gz": gzip.compress(b"text,labels\nx,a\n")[:-9],
    "no.parquet": b"PAR1 and no more",
    "deep.jsonl": b'{"text": ' + b"[" * 100_000,
    "line.csv": b"text,labels\n" + b"x" * (65 << 20),
    "cells.csv": b"text,labels\nx,a,b\n",
    "no\udcff.csv": b"text,labels\nx,a\n",
    "empty.txt": b"",
}


@pytest.mark.parametrize("name", HOSTILE_FILES)  # by name: a test id must not hold the time that gzip writes
def test_a_hostile_file_is_refused_with_a_message(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE_FILES[name])
    with pytest.raises(EyrieError):
        write_first_preset([path], "x", tmp_path / "x.yaml", None, None)
    assert not (tmp_path / "x.yaml").exists()


def test_long_cells_are_read_and_wrong_rows_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,labels\n" + "x" * 200_000 + ",a\nx,a,b\n")
    assert guess_preset([path]).reader["text"] == "text"


def test_the_name_of_a_file_adds_nothing_to_the_preset(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a\nseed: 7\n#.jsonl", ROWS)
    write_first_preset([path], "x", tmp_path / "x.yaml", None, None)
    assert set(yaml.safe_load((tmp_path / "x.yaml").read_text())) == {"name", "data", "model"}


def test_the_command_writes_beside_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    jsonl(tmp_path / "laws.jsonl", ROWS)
    assert main(["init", "laws.jsonl"]) == 0
    assert yaml.safe_load((tmp_path / "laws.yaml").read_text())["name"] == "laws"
    assert "eyrie pipeline laws.yaml" in capsys.readouterr().out


def test_files_below_the_preset_may_be_moved_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (folder / "data").mkdir(parents=True)
    elsewhere.mkdir()
    train, test = jsonl(folder / "data/train.jsonl", ROWS), jsonl(elsewhere / "test.jsonl", ROWS)
    monkeypatch.chdir(folder)
    files, output = [Path("data/train.jsonl"), Path("../elsewhere/test.jsonl")], Path("laws.yaml")
    write_first_preset(files, "laws", output, None, None)
    written = yaml.safe_load(output.read_text())["data"]
    assert written["train"] == ["data/train.jsonl"]
    assert Path(written["test"][0]).is_absolute()
    assert Path(written["test"][0]).samefile(test)
    monkeypatch.chdir(elsewhere)
    moved = folder.rename(tmp_path / "moved")
    found = load_params(FLOWS["pipeline"].params, moved / "laws.yaml").data
    assert found.train == [moved / train.relative_to(folder)]


def test_pairs_below_the_preset_are_relative_too(tmp_path: Path) -> None:
    for name in ("X.npz", "Y.npz"):
        sp.save_npz(tmp_path / name, sp.csr_array((4, 3)))
    output = tmp_path / "a.yaml"
    write_first_preset([tmp_path / "X.npz", tmp_path / "Y.npz"], "a", output, None, None)
    assert yaml.safe_load(output.read_text())["data"]["train"] == [{"features": "X.npz", "labels": "Y.npz"}]


def test_a_preset_becomes_a_deployment_without_prefect_yaml(tmp_path: Path) -> None:
    output = tmp_path / "laws.yaml"
    write_first_preset([jsonl(tmp_path / "laws.jsonl", ROWS)], "laws", output, None, None)
    deployment = deployment_of(output)
    assert (deployment.name, deployment.entrypoint) == ("pipeline-laws", "flows.pipeline.pipeline")
    assert "eyrie" not in deployment.tags, "`deploy` would remove it"
    assert deployment.run_parameters["params"]["name"] == "laws"
    with pytest.raises(ConfigError, match="did you mean 'retrain'"):
        deployment_of(output, "retrane")
