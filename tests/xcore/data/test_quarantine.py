from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.errors import InputError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]

BAD = {3: "1 9:1", 4: "1 0:nan", 6: "1,1 0:1", 8: "1"}


def spoiled(path: Path, n: int = 8) -> Path:
    rows = [BAD.get(line, f"{line % 3} {line % 5}:{line}") for line in range(2, n + 2)]
    path.write_text("\n".join([f"{n} 5 3", *rows, ""]))
    return path


@pytest.mark.parametrize("block_bytes", [1, 20, 1 << 20])
def test_bad_rows_are_set_aside_with_their_reason_and_the_rest_is_kept(
    block_bytes: int, tmp_path: Path, ingested: Run
) -> None:
    path = spoiled(tmp_path / "t.txt")
    dataset, counts = ingested(
        reader={"kind": "xmc"}, train=[path], on_bad_row="quarantine", max_bad_share=0.5, block_bytes=block_bytes,
        repeated_labels="fail",
    )  # fmt: skip
    assert dataset.row_ids("train").to_pylist() == ["0", "3", "5", "7"]
    assert dataset.sparse("train").data.tolist() == [2, 5, 7, 9]
    table = dataset.quarantine()
    assert table is not None
    rows = table.to_pylist()
    assert [(row["line"], row["column"], row["problem"]) for row in rows] == [
        (3, "3", "feature id out of range"),
        (4, "5", "NaN value"),
        (6, "labels", "repeated label id"),
        (8, None, "row with no features"),
    ]
    assert rows[0] | {"file": Path(rows[0]["file"]).name} == {
        "split": "train", "file": "t.txt", "line": 3, "column": "3", "problem": "feature id out of range",
        "found": "'9:1'", "expected": "an id from 0 to 4",
    }  # fmt: skip
    assert counts["quarantined"]["rows"] == 4
    assert counts["quarantined"]["reasons"]["NaN value"] == {
        "rows": 1,
        "first": [f"{path}:4:5: NaN value: found 'nan', expected a finite number. "
                  "Leave the feature out where its value is not known."],
    }  # fmt: skip
    assert counts["rows_read"] == 8


def test_quarantine_fails_above_the_share_and_leaves_nothing(tmp_path: Path) -> None:
    train = [spoiled(tmp_path / "t.txt")]
    options = {"on_bad_row": "quarantine", "max_bad_share": 0.49, "repeated_labels": "fail"}
    source = Source.model_validate({"reader": {"kind": "xmc"}, "train": train} | options)
    target = tmp_path / "dataset"
    target.mkdir()
    with pytest.raises(
        InputError, match=r"t\.txt:3:3: too many bad rows: found 4 of 8 rows, .*at most a share of 0\.49"
    ):
        ingest(source, target, np.random.default_rng(0), silent)
    assert list(target.iterdir()) == []


def test_no_quarantine_table_is_written_where_all_rows_are_good(tmp_path: Path, ingested: Run) -> None:
    dataset, counts = ingested(
        reader={"kind": "xmc"}, train=[spoiled(tmp_path / "t.txt", 1)], on_bad_row="quarantine", max_bad_share=0.0
    )
    assert dataset.quarantine() is None
    assert counts["quarantined"] == {"rows": 0, "reasons": {}}


def test_damage_to_a_whole_file_fails_in_quarantine_too(tmp_path: Path, ingested: Run) -> None:
    (tmp_path / "t.txt").write_text("5 5 3\n1 1:1\n")
    with pytest.raises(InputError, match="truncated file"):
        ingested(reader={"kind": "xmc"}, train=[tmp_path / "t.txt"], on_bad_row="quarantine", max_bad_share=1.0)


def test_tables_keep_going_past_every_kind_of_bad_row(tmp_path: Path, ingested: Run) -> None:
    rows: list[Any] = [
        {"id": "a", "text": "good", "labels": ["x"], "page": "p"},
        {"id": "b", "text": "unknown label", "labels": ["nope"], "page": "p"},
        {"id": "a", "text": "the same id", "labels": ["x"], "page": "p"},
        ["no row"],
        {"id": "c", "text": "", "labels": ["x"], "page": "p"},
        {"id": "d", "text": "also good", "labels": ["y"], "page": "p"},
    ]
    (tmp_path / "t.jsonl").write_text("{cut\n" + "".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "labels.csv").write_text("id\nx\ny\nnever\n")
    dataset, counts = ingested(
        reader={"kind": "jsonl", "text": "text", "id": "id", "group": "page"}, train=[tmp_path / "t.jsonl"],
        labels=tmp_path / "labels.csv", on_bad_row="quarantine", max_bad_share=0.8,
    )  # fmt: skip
    assert dataset.row_ids("train").to_pylist() == ["a", "d"]
    assert {problem: reason["rows"] for problem, reason in counts["quarantined"]["reasons"].items()} == {
        "not JSON": 1, "unknown label": 1, "repeated row id": 1, "not a row": 1, "row with no features": 1,
    }  # fmt: skip
    groups = dataset.groups()
    assert groups is not None
    assert groups.to_pylist() == [{"id": "p", "members": [0, 1], "labels": [0, 1], "counts": [1, 1]}]


def test_a_label_only_in_rows_set_aside_is_no_label(tmp_path: Path, ingested: Run) -> None:
    rows = [{"text": "good", "labels": ["m"]}, {"text": " ", "labels": ["a"]}, {"text": "fine", "labels": ["z"]}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset, _ = ingested(
        reader={"kind": "jsonl", "text": "text"},
        train=[tmp_path / "t.jsonl"],
        on_bad_row="quarantine",
        max_bad_share=0.5,
    )
    assert dataset.label_table()["id"].to_pylist() == ["m", "z"]
    assert dataset.Y("train").indices.tolist() == [0, 1]


def test_a_member_that_is_not_there_leaves_its_group_in_quarantine_mode(tmp_path: Path, ingested: Run) -> None:
    (tmp_path / "t.txt").write_text("3 2 2\n0:1\n1:nan\n1:1\n")
    (tmp_path / "g.jsonl").write_text('{"id": "g", "members": [0, 1, 2], "labels": [1]}\n')
    dataset, counts = ingested(
        reader={"kind": "xmc"}, train=[tmp_path / "t.txt"], groups=tmp_path / "g.jsonl", on_bad_row="quarantine",
        max_bad_share=0.5,
    )  # fmt: skip
    groups = dataset.groups()
    assert groups is not None
    assert groups["members"].to_pylist() == [[0, 1]]
    assert counts["quarantined"]["reasons"]["unknown row in a group"]["rows"] == 1
