from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from xcore.data.dataset import Dataset, merge_of
from xcore.data.source import Source
from xcore.errors import ConfigError, InputError
from xcore.grouping.given import GivenGroups

Run = Callable[..., tuple[Dataset, dict[str, Any]]]


def put(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    return put(path, "".join(json.dumps(row) + "\n" for row in rows))


def groups_of(dataset: Dataset) -> list[tuple[str, list[int], dict[str, int]]]:
    names = dataset.label_table()["id"].to_pylist()
    table = dataset.groups()
    assert table is not None
    assert table.schema.field("members").type == table.schema.field("counts").type == pa.list_(pa.int32())
    return [
        (row["id"], row["members"], {names[label]: n for label, n in zip(row["labels"], row["counts"], strict=True)})
        for row in table.to_pylist()
    ]


READER = {"kind": "jsonl", "text": "text", "id": "id"}
GROUPED = READER | {"group": "page"}
PAGES = [
    {"id": "a", "text": "one", "labels": ["x", "y"], "page": "p2"},
    {"id": "b", "text": "two", "labels": ["x"], "page": "p1"},
    {"id": "c", "text": "three", "labels": ["x", "z"], "page": "p2"},
    {"id": "d", "text": "four", "labels": ["w"], "page": None},
]


def test_a_label_table_gives_order_names_and_parents(tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", [{"id": "1", "text": "x", "labels": ["b", "a"]}])
    rows = [{"id": "b", "name": "Bee", "parents": ["q"]}, {"id": "q", "name": "Queen", "parents": []},
            {"id": "a", "name": "Ant", "parents": ["q", "b"]}]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "labels.parquet")
    tables = [
        tmp_path / "labels.parquet",
        lines(tmp_path / "labels.jsonl", rows),
        {"path": put(tmp_path / "l.csv", "id,name,parents\nb,Bee,q\nq,Queen,\na,Ant,q|b\n"), "delimiter": "|"},
    ]
    for table in tables:
        dataset, counts = ingested(reader=READER, train=[train], labels=table)
        assert dataset.label_table().to_pylist() == [row | {"train_count": int(row["id"] != "q")} for row in rows]
        assert dataset.Y("train").indices.tolist() == [0, 2]
        assert counts["labels_never_seen"] == 1


def test_a_label_that_the_table_does_not_have_is_an_error(tmp_path: Path, ingested: Run) -> None:
    table = put(tmp_path / "labels.csv", "id,name\na,Ant\n")
    train = lines(
        tmp_path / "t.jsonl",
        [{"id": "1", "text": "x", "labels": ["a"]}, {"id": "2", "text": "y", "labels": ["a", "B"]}],
    )
    with pytest.raises(
        InputError, match=r"t\.jsonl:2 \(column 'labels'\): unknown label: found 'B', expected a label of"
    ):
        ingested(reader=READER, train=[train], labels=table)


def test_messages_name_the_column_as_the_file_does(tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", [{"key": "1", "body": "x", "tags": ["a", "a"]}])
    reader = {"kind": "jsonl", "text": "body", "id": "key", "labels": "tags"}
    with pytest.raises(InputError, match=r"t\.jsonl:1 \(column 'tags'\): repeated label id"):
        ingested(reader=reader, train=[train], repeated_labels="fail")
    lines(train, [{"key": "1", "body": " ", "tags": []}])
    with pytest.raises(InputError, match=r"t\.jsonl:1 \(column 'body'\): row with no features"):
        ingested(reader=reader, train=[train])
    lines(train, [{"key": "1", "body": "x", "tags": []}] * 2)
    with pytest.raises(InputError, match=r"t\.jsonl:2 \(column 'key'\): repeated row id"):
        ingested(reader=reader, train=[train])


def test_integer_labels_are_looked_up_in_the_table_by_id_or_by_row(tmp_path: Path, ingested: Run) -> None:
    train = put(tmp_path / "t.txt", "2 2 6\n5,0 0:1\n5 1:1\n")
    by_id = put(tmp_path / "ids.csv", "id,name\n5,five\n0,zero\n")
    dataset, _ = ingested(reader={"kind": "xmc"}, train=[train], labels=by_id)
    assert dataset.label_table()["name"].to_pylist() == ["five", "zero"]
    np.testing.assert_array_equal(dataset.Y("train").toarray(), [[1, 1], [1, 0]])
    names = put(tmp_path / "names.csv", "name\n" + "".join(f"n{i}\n" for i in range(6)))
    dataset, _ = ingested(reader={"kind": "xmc"}, train=[train], labels={"path": names, "id": None})
    assert dataset.label_table()["name"].to_pylist()[5] == "n5"
    assert dataset.Y("train").indices.tolist() == [0, 5, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,name\na,A\nb,B\na,C\n", r"labels\.csv:4 \(column 'id'\): repeated label: found 'a', .*line 2"),
        ("key,name\na,A\n", r"labels\.csv:1 \(column 'id'\): missing column: found key, name"),
        ("id,name\n,A\n", r"labels\.csv:2 \(column 'id'\): missing or wrong id"),
        ("id,parents\na,b;c\n", r"labels\.csv:2 \(column 'parents'\): labels are one text: .*this file's delimiter"),
        ("", r"labels\.csv: empty file"),
    ],
)
def test_a_bad_label_table_is_named(content: str, message: str, tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", [{"id": "1", "text": "x", "labels": ["a"]}])
    with pytest.raises(InputError, match=message):
        ingested(reader=READER, train=[train], labels=put(tmp_path / "labels.csv", content))


def merge_stored(dataset: Dataset) -> str | None:
    table = dataset.groups()
    assert table is not None
    return merge_of(table)


def test_labels_that_are_said_to_be_the_groups_give_sets(tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", PAGES)
    test = lines(tmp_path / "e.jsonl", [{"id": "e", "text": "five", "labels": ["z"]}])  # needs no group
    dataset, counts = ingested(reader=GROUPED, train=[train], test=[test], row_labels="group")
    assert merge_stored(dataset) == "set"
    assert groups_of(dataset) == [("p2", [0, 2], {"x": 1, "y": 1, "z": 1}), ("p1", [1], {"x": 1})]
    assert (dataset.n_rows("train"), dataset.Y("train").nnz) == (3, 0)
    assert dataset.Y("test").nnz == 1
    assert dataset.truth("train") is None
    assert counts["groups"] == {
        "groups": 2, "members": 3, "label_nnz": 4, "groups_without_labels": 0, "rows_in_no_group": 0,
        "rows_in_several_groups": 0, "repeated_labels": 0, "merge": "set",
    }  # fmt: skip
    assert counts["row_labels"] == "group"
    assert "as their group's set" in counts["notes"][0]
    assert counts["rows_of_unknown_labels"] == 1
    assert counts["notes"][1] == "Train rows in no group with labels were left out, as their labels are unknown: 1."
    table = dataset.label_table()
    assert dict(zip(table["id"].to_pylist(), table["train_count"].to_pylist(), strict=True)) == {"x": 2, "y": 1, "z": 1}


@pytest.mark.parametrize("row_labels", ["own", "auto"])
def test_own_labels_are_counted_and_kept_as_truth(row_labels: str, tmp_path: Path, ingested: Run) -> None:
    """Issue: a group column stored every count as 1, but called the counts known."""
    train = [lines(tmp_path / "t.jsonl", PAGES)]
    dataset, counts = ingested(reader=GROUPED, train=train, row_labels=row_labels)
    assert (merge_stored(dataset), counts["row_labels"]) == ("list", "own")
    assert counts["notes"] == ["Labels were read as the rows' own; group counts are counted from them."]
    assert groups_of(dataset) == [("p2", [0, 2], {"x": 2, "y": 1, "z": 1}), ("p1", [1], {"x": 1})]
    truth = dataset.truth("train")
    assert truth is not None
    names = dataset.label_table()["id"].to_pylist()
    own = [[names[label] for label in truth.indices[a:b]] for a, b in zip(truth.indptr, truth.indptr[1:], strict=False)]
    assert own == [["x", "y"], ["x"], ["x", "z"], ["w"]]
    assert names == ["x", "y", "z", "w"]  # no group has w
    given = GivenGroups().group(sp.csr_array((4, 1)), truth, np.random.default_rng(0), dataset.groups())
    assert given.merge == "list"
    assert given.labels.toarray().tolist() == [[2, 1, 1, 0], [1, 0, 0, 0]]


def test_labels_that_all_rows_of_a_group_repeat_are_the_groups(tmp_path: Path, ingested: Run) -> None:
    same = {"p1": ["x"], "p2": ["z", "x"], None: ["w"]}
    rows = [page | {"labels": same[page["page"]]} for page in PAGES]
    rows[2]["labels"] = ["x", "z"]  # in another order
    train = [lines(tmp_path / "t.jsonl", rows)]
    dataset, counts = ingested(reader=GROUPED, train=train)
    assert (merge_stored(dataset), counts["row_labels"]) == ("set", "group")
    assert groups_of(dataset) == [("p2", [0, 2], {"x": 1, "z": 1}), ("p1", [1], {"x": 1})]
    assert dataset.truth("train") is None
    no_truth = sp.csr_array((3, dataset.n_labels))
    given = GivenGroups().group(sp.csr_array((3, 1)), no_truth, np.random.default_rng(0), dataset.groups())
    assert given.merge == "set"
    with pytest.raises(ConfigError, match="only the set of labels of each group"):
        GivenGroups(merge="list").group(sp.csr_array((3, 1)), no_truth, np.random.default_rng(0), dataset.groups())
    claimed, _ = ingested(reader=GROUPED, train=train, row_labels="own")
    assert groups_of(claimed) == [("p2", [0, 2], {"x": 2, "z": 2}), ("p1", [1], {"x": 1})]


def test_groups_of_one_row_tell_nothing_against_labels_of_their_own(tmp_path: Path, ingested: Run) -> None:
    rows = [page | {"page": page["id"]} for page in PAGES]
    dataset, counts = ingested(reader=GROUPED, train=[lines(tmp_path / "t.jsonl", rows)])
    assert (merge_stored(dataset), counts["row_labels"]) == ("list", "own")


def test_a_groups_file_names_members_and_labels_and_groups_may_overlap(tmp_path: Path, ingested: Run) -> None:
    rows = [{"id": row["id"], "text": row["text"]} for row in PAGES]
    train = lines(tmp_path / "t.jsonl", rows)
    test = lines(tmp_path / "e.jsonl", [{"id": "e", "text": "five", "labels": ["v"]}])
    groups = put(tmp_path / "g.csv", "id,members,labels\ng1,c b,n m n\ng2,b a,m\n")
    dataset, counts = ingested(reader=READER, train=[train], test=[test], groups={"path": groups, "delimiter": " "})
    assert groups_of(dataset) == [("g1", [1, 2], {"m": 1, "n": 2}), ("g2", [0, 1], {"m": 1})]
    assert merge_stored(dataset) == "list"
    assert counts["notes"] == [
        "Labels of groups were read as lists: a label is repeated once for each member that has it.",
        "Train rows in no group with labels were left out, as their labels are unknown: 1.",
    ]
    assert (dataset.n_rows("train"), counts["rows_of_unknown_labels"]) == (3, 1)
    as_sets = {"path": groups, "delimiter": " ", "merge": "set"}
    dataset, sets = ingested(reader=READER, train=[train], test=[test], groups=as_sets)
    assert groups_of(dataset) == [("g1", [1, 2], {"m": 1, "n": 1}), ("g2", [0, 1], {"m": 1})]
    assert (merge_stored(dataset), sets["groups"]["repeated_labels"]) == ("set", 1)
    assert dataset.label_table()["id"].to_pylist() == ["m", "n", "v"]
    assert (counts["groups"]["rows_in_no_group"], counts["groups"]["rows_in_several_groups"]) == (0, 1)
    assert counts["labels_not_in_train"] == 1


def test_groups_without_recorded_labels_are_no_negatives(tmp_path: Path, ingested: Run) -> None:
    """g2 has an empty cell: its members have no label, or nobody has looked. c is in g1 too, and stays in any case."""
    train = lines(tmp_path / "t.jsonl", [{"id": row["id"], "text": row["text"]} for row in PAGES])
    test = lines(tmp_path / "e.jsonl", [{"id": "e", "text": "five", "labels": ["n"]}])
    groups = put(tmp_path / "g.csv", "id,members,labels\ng1,a c,n\ng2,b c,\ng3,d,n m\n")
    read = {"path": groups, "delimiter": " "}
    dataset, counts = ingested(reader=READER, train=[train], test=[test], groups=read)
    found = [("g1", [0, 2], {"n": 1}), ("g2", [1, 2], {}), ("g3", [3], {"m": 1, "n": 1})]
    assert (groups_of(dataset), counts["rows_of_unknown_labels"]) == (found, 0)
    dataset, counts = ingested(reader=READER, train=[train], test=[test], groups=read | {"empty": "unknown"})
    assert groups_of(dataset) == [("g1", [0, 1], {"n": 1}), ("g3", [2], {"m": 1, "n": 1})]
    assert (dataset.n_rows("train"), counts["rows_of_unknown_labels"]) == (3, 1)
    assert dataset.row_ids("train").to_pylist() == ["a", "c", "d"]


def test_a_groups_file_may_only_label_the_groups_of_a_column(tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", PAGES)
    groups = lines(tmp_path / "g.jsonl", [{"id": "p1", "labels": ["k"]}, {"id": "p2", "labels": ["k", "j"]}])
    dataset, _ = ingested(reader=GROUPED, train=[train], groups=groups)
    assert groups_of(dataset) == [("p1", [1], {"k": 1}), ("p2", [0, 2], {"j": 1, "k": 1})]
    assert dataset.label_table()["id"].to_pylist() == ["j", "k"]
    assert merge_stored(dataset) == "set"
    counted, _ = ingested(reader=GROUPED, train=[train], groups={"path": groups, "merge": "list"})
    assert merge_stored(counted) == "list"


def test_members_of_files_without_ids_are_row_numbers_and_labels_label_numbers(tmp_path: Path, ingested: Run) -> None:
    train = put(tmp_path / "t.txt", "3 2 4\n0:1\n1:1\n0:2\n")
    groups = lines(tmp_path / "g.jsonl", [{"id": "g", "members": [2, 0], "labels": [3]}])
    dataset, _ = ingested(reader={"kind": "xmc"}, train=[train], groups=groups)
    assert groups_of(dataset) == [("g", [0, 1], {"3": 1})]
    assert dataset.sparse("train").toarray().tolist() == [[1, 0], [2, 0]], "the row in the middle is in no group"
    wrong = lines(tmp_path / "w.jsonl", [{"id": "g", "members": [0], "labels": [4]}])
    with pytest.raises(InputError, match=r"w\.jsonl:1 \(column 'labels'\): unknown label: found '4'"):
        ingested(reader={"kind": "xmc"}, train=[train], groups=wrong)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"members": ["a", "nobody"]}, r"g\.jsonl:2 \(column 'members'\): unknown row in a group: found 'nobody'"),
        ({"members": ["a", "a"]}, r"g\.jsonl:2 \(column 'members'\): repeated row in a group: found 'a'"),
        ({"id": "g1", "members": []}, r"g\.jsonl:2 \(column 'id'\): repeated group: found 'g1', .*line 1"),
    ],
)
def test_a_bad_groups_file_is_named(row: dict[str, Any], message: str, tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", PAGES)
    first = {"id": "g1", "members": ["b"], "labels": ["x"]}
    groups = lines(tmp_path / "g.jsonl", [first, {"id": "g2", "labels": ["x"]} | row])
    with pytest.raises(InputError, match=message):
        ingested(reader=READER, train=[train], groups=groups)


def test_a_row_of_a_group_that_the_file_does_not_have_is_an_error(tmp_path: Path, ingested: Run) -> None:
    groups = lines(tmp_path / "g.jsonl", [{"id": "p2", "labels": ["k"]}])
    with pytest.raises(InputError, match=r"t\.jsonl:2 \(column 'page'\): unknown group: found 'p1'"):
        ingested(reader=GROUPED, train=[lines(tmp_path / "t.jsonl", PAGES)], groups=groups)


def test_options_about_groups_that_contradict_each_other_are_refused(tmp_path: Path, ingested: Run) -> None:
    train = lines(tmp_path / "t.jsonl", PAGES)
    with_members = lines(tmp_path / "g.jsonl", [{"id": "p2", "members": ["a"], "labels": ["k"]}])
    with pytest.raises(ConfigError, match="leave one of them out"):
        ingested(reader=GROUPED, train=[train], groups=with_members)
    with pytest.raises(ConfigError, match="the members of the groups are unknown"):
        ingested(reader=READER, train=[train], groups=lines(tmp_path / "h.jsonl", [{"id": "p2", "labels": ["k"]}]))
    with pytest.raises(ValueError, match="holdout needs rows with labels of their own"):
        Source.model_validate({"reader": GROUPED, "train": [train], "holdout": {"test": 0.5}, "row_labels": "group"})
    repeated = lines(tmp_path / "r.jsonl", [page | {"labels": ["x"]} for page in PAGES])
    labelled = lines(tmp_path / "l.jsonl", [{"id": "p1", "labels": ["k"]}, {"id": "p2", "labels": ["k"]}])
    for share in (0.5, None):
        for files in ({"train": [repeated]}, {"train": [train], "groups": labelled}):
            with pytest.raises(ConfigError, match="cannot be held out as test, because their labels belong to groups"):
                ingested(reader=GROUPED, **files, holdout={"test": share})
