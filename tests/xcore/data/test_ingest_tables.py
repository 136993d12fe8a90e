from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.errors import ConfigError, InputError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]
TEXT = {"text": "text", "id": "id"}

ROWS = [
    {"id": "r1", "text": "wings, and\nfeathers", "labels": ["b", "a"], "vector": [1.0, 2.5]},
    {"id": "r2", "text": 'the "nest"', "labels": [], "vector": [0.0, -1.0]},
    {"id": "r3", "text": "höher", "labels": ["c"], "vector": [3.0, 4.0]},
]


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def as_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    return put(path, "".join(json.dumps(row) + "\n" for row in rows))


def as_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        for row in rows:
            joined = {"labels": ";".join(row["labels"]), "vector": " ".join(map(str, row["vector"]))}
            writer.writerow(row | joined)
    return path


def forms(folder: Path, rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Path]]:
    return [
        ({"kind": "parquet"}, as_parquet(folder / "rows.parquet", rows)),
        ({"kind": "jsonl"}, as_jsonl(folder / "rows.jsonl", rows)),
        ({"kind": "csv", "label_delimiter": ";"}, as_csv(folder / "rows.csv", rows)),
        ({"kind": "csv", "label_delimiter": ";", "delimiter": "\t"}, as_csv(folder / "rows.tsv", rows, "\t")),
    ]


def files_of(dataset: Dataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dataset.directory.iterdir()}


def test_texts_read_the_same_from_every_table_and_block_size(tmp_path: Path, ingested: Run) -> None:
    written = []
    for reader, path in forms(tmp_path, ROWS):
        for block_bytes in (1, 1 << 20):
            dataset, counts = ingested(reader=reader | TEXT, train=[path], block_bytes=block_bytes)
            texts = [text for block in dataset.text_blocks("train", block=2) for text in block.to_pylist()]
            assert texts == [row["text"] for row in ROWS]
            assert dataset.row_ids("train").to_pylist() == ["r1", "r2", "r3"]
            assert dataset.label_table()["id"].to_pylist() == ["a", "b", "c"]
            np.testing.assert_array_equal(dataset.Y("train").toarray(), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
            assert dataset.Y("train").indices.tolist() == [0, 1, 2]  # ascending in each row
            assert counts["rows_without_labels"] == {"train": 1}
            assert (dataset.form, dataset.n_features) == ("text", 0)
            written.append(files_of(dataset))
    assert all(files == written[0] for files in written)


def test_vectors_read_the_same_from_every_table(tmp_path: Path, ingested: Run) -> None:
    for reader, path in forms(tmp_path, ROWS):
        dataset, _ = ingested(reader=reader | {"vector": "vector", "id": "id"}, train=[path])
        assert (dataset.form, dataset.n_features) == ("vector", 2)
        np.testing.assert_array_equal(dataset.dense("train"), [[1, 2.5], [0, -1], [3, 4]])
        np.testing.assert_array_equal(dataset.sparse("train").toarray(), [[1, 2.5], [0, -1], [3, 4]])


@pytest.mark.parametrize(
    "vectors",
    [
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int16())),
        pa.array([[1, 2], [3, 4]], pa.large_list(pa.float64())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
    ],
)
def test_parquet_columns_may_have_any_type_of_their_kind(vectors: pa.Array, tmp_path: Path, ingested: Run) -> None:
    labels = pa.array([[7, 12], []], pa.large_list(pa.int64()))
    ids = pa.array([5, 6]).cast(pa.int16())
    pq.write_table(pa.table({"v": vectors, "l": labels, "i": ids}), tmp_path / "t.parquet")
    reader = {"kind": "parquet", "vector": "v", "labels": "l", "id": "i"}
    dataset, _ = ingested(reader=reader, train=[tmp_path / "t.parquet"])
    np.testing.assert_array_equal(dataset.dense("train"), [[1, 2], [3, 4]])
    assert dataset.label_table()["id"].to_pylist() == ["12", "7"]
    assert dataset.row_ids("train").to_pylist() == ["5", "6"]


def test_a_parquet_text_of_labels_is_split_and_trimmed(tmp_path: Path, ingested: Run) -> None:
    rows = [{"text": "x", "labels": " a ;b;"}, {"text": "y", "labels": ""}]
    path = as_parquet(tmp_path / "t.parquet", rows)
    dataset, _ = ingested(reader={"kind": "parquet", "text": "text", "label_delimiter": ";"}, train=[path])
    np.testing.assert_array_equal(dataset.Y("train").toarray(), [[1, 1], [0, 0]])
    with pytest.raises(InputError, match=r"labels are one text: .*Set the reader's label_delimiter"):
        ingested(reader={"kind": "parquet", "text": "text"}, train=[path])


def test_a_byte_order_mark_and_compression_do_not_show(tmp_path: Path, ingested: Run) -> None:
    content = b"\xef\xbb\xbftext,labels\r\none,a\r\n"
    with pa.output_stream(str(tmp_path / "t.csv.gz"), compression="gzip") as stream:
        stream.write(content)
    dataset, _ = ingested(reader={"kind": "csv", "text": "text", "label_delimiter": ";"}, train=[tmp_path / "t.csv.gz"])
    assert [block.to_pylist() for block in dataset.text_blocks("train")] == [["one"]]


def test_csv_cells_may_be_longer_than_the_parsers_default_limit(tmp_path: Path, ingested: Run) -> None:
    path = put(tmp_path / "t.csv", f"text,labels\n{'long ' * 40_000},a\n")
    dataset, _ = ingested(reader={"kind": "csv", "text": "text", "label_delimiter": ";"}, train=[path])
    assert len(next(dataset.text_blocks("train"))[0].as_py()) == 200_000


def test_labels_only_seen_outside_train_stay_in_the_space_after_those_of_train(tmp_path: Path, ingested: Run) -> None:
    train = as_jsonl(tmp_path / "train.jsonl", [{"text": "x", "labels": ["m", "d"]}])
    test = as_jsonl(tmp_path / "test.jsonl", [{"text": "y", "labels": ["z", "d", "b"]}])
    dataset, counts = ingested(reader={"kind": "jsonl", "text": "text"}, train=[train], test=[test])
    assert dataset.label_table()["id"].to_pylist() == ["d", "m", "b", "z"]
    assert dataset.label_table()["train_count"].to_pylist() == [1, 1, 0, 0]
    assert counts["labels_not_in_train"] == 2
    np.testing.assert_array_equal(dataset.Y("test").toarray(), [[1, 0, 1, 1]])


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ('{"id": 1, "text": "x", "labels": ["a"]}\n{"id": 2, "text": "y", "la', ":2:24", "not JSON"),
        ('{"id": 1, "text": "x", "labels": "a"}', ":1 (column 'labels')", "labels are one text: found 'a'"),
        ('{"id": 1, "text": "x", "labels": null}', ":1 (column 'labels')", "wrong type: found None"),
        ('{"id": 1, "text": "x", "labels": [""]}', ":1 (column 'labels')", "missing or wrong label: found ''"),
        ('{"id": 1, "text": "x", "labels": [1.5]}', ":1 (column 'labels')", "missing or wrong label: found 1.5"),
        ('{"id": 1, "text": 5, "labels": []}', ":1 (column 'text')", "wrong type: found 5, expected a text"),
        ('{"id": 1, "text": " ", "labels": []}', ":1 (column 'text')", "row with no features: found an empty text"),
        ('{"id": 1, "labels": []}', ":1 (column 'text')", "missing cell"),
        ('{"id": "", "text": "x", "labels": []}', ":1 (column 'id')", "missing or wrong id"),
        ("[1, 2]", ":1:1", "not a row: found [1, 2]"),
        (b'\n{"id": 1, "text": "\xff", "labels": []}', ":2:20", "undecodable bytes: found byte 0xff, expected UTF-8"),
        ("\n\n", "", "empty file: found no rows"),
        (
            '{"id": 1, "text": "x", "labels": []}\n\n{"id": 1, "text": "y", "labels": []}',
            ":3 (column 'id')",
            "repeated row id: found '1', expected an id that is not at ",
        ),
    ],
)
def test_bad_json_lines_are_named_and_nothing_is_left(
    content: str | bytes, place: str, problem: str, tmp_path: Path
) -> None:
    path, target = put(tmp_path / "train.jsonl", content), tmp_path / "dataset"
    target.mkdir()
    source = Source.model_validate({"reader": {"kind": "jsonl"} | TEXT, "train": [path]})
    with pytest.raises(InputError) as caught:
        ingest(source, target, np.random.default_rng(0), silent)
    assert str(caught.value).startswith(f"{path}{place}: {problem}")
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ("id,text\n1,x\n", ":1 (column 'labels')", "missing column: found id, text"),
        ('id,text,labels\n1,"a\nb",x\n2,y\n', ":4", "wrong number of cells: found 2, expected 3"),
        ('id,text,labels\n1,"a\n', ":2", "not a CSV record"),
        ('id,text,labels\n1,"a"b,x\n', ":2", "not a CSV record"),
        (b'id,text,labels\n1,"a\n\xe9",x\n', ":3:1", "undecodable bytes: found byte 0xe9"),
        ("id,text,labels\n,a,x\n", ":2 (column 'id')", "missing or wrong id"),
    ],
)
def test_bad_csv_is_named(content: str | bytes, place: str, problem: str, tmp_path: Path, ingested: Run) -> None:
    path = put(tmp_path / "train.csv", content)
    with pytest.raises(InputError) as caught:
        ingested(reader={"kind": "csv", "label_delimiter": ";"} | TEXT, train=[path])
    assert str(caught.value).startswith(f"{path}{place}: {problem}")


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([1.0, float("nan")], "NaN value"),
        ([1.0, None], "NaN value"),
        ([float("-inf"), 1.0], "infinite value"),
        ([1e300, 1.0], "infinite value"),
        ([1.0], "wrong length: found 1 numbers, expected 2"),
        (None, "row with no features: found null"),
    ],
)
def test_bad_vectors_are_named(vector: Any, problem: str, tmp_path: Path, ingested: Run) -> None:
    rows = [{"v": [0.5, 1.0], "labels": ["a"]}, {"v": vector, "labels": ["a"]}]
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.Table.from_pylist(rows, pa.schema({"v": pa.list_(pa.float64()), "labels": pa.list_(pa.string())})), path
    )
    with pytest.raises(InputError) as caught:
        ingested(reader={"kind": "parquet", "vector": "v"}, train=[path])
    assert str(caught.value).startswith(f"{path}:2 (column 'v'): {problem}")


def test_bad_parquet_is_named(tmp_path: Path, ingested: Run) -> None:
    reader = {"kind": "parquet", "text": "text"}
    bad = pa.array([b"ok", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"text": bad, "labels": pa.array([["a"], ["b"]])}), tmp_path / "bytes.parquet")
    with pytest.raises(InputError, match=r"bytes\.parquet:2 \(column 'text'\): undecodable bytes: found byte 0xff"):
        ingested(reader=reader, train=[tmp_path / "bytes.parquet"])
    whole = as_parquet(tmp_path / "t.parquet", ROWS)
    with pytest.raises(
        InputError, match=r"t\.parquet \(column 'words'\): missing column: found id, text, labels, vector"
    ):
        ingested(reader={"kind": "parquet", "text": "words"}, train=[whole])
    with pytest.raises(InputError, match=r"t\.parquet \(column 'labels'\): wrong type: found list"):
        ingested(reader={"kind": "parquet", "text": "labels"}, train=[whole])
    cut = put(tmp_path / "cut.parquet", whole.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"cut\.parquet: truncated or damaged file"):
        ingested(reader=reader, train=[cut])
    pq.write_table(pq.read_table(whole).slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"none\.parquet: empty file: found 0 rows"):
        ingested(reader=reader, train=[tmp_path / "none.parquet"])
    with pytest.raises(InputError, match=r"absent\.parquet: missing file"):
        ingested(reader=reader, train=[tmp_path / "absent.parquet"])
    nulls = pa.table({"text": ["a", "b"], "labels": pa.array([["a"], None])})
    pq.write_table(nulls, tmp_path / "null.parquet")
    with pytest.raises(InputError, match=r"null\.parquet:2 \(column 'labels'\): no label list: found null"):
        ingested(reader=reader, train=[tmp_path / "null.parquet"])


def test_a_train_row_id_inside_test_is_an_error(tmp_path: Path, ingested: Run) -> None:
    train = as_jsonl(tmp_path / "train.jsonl", [{"id": "a", "text": "x", "labels": ["l"]}])
    test = as_jsonl(
        tmp_path / "test.jsonl", [{"id": "b", "text": "y", "labels": []}, {"id": "a", "text": "z", "labels": []}]
    )
    with pytest.raises(
        InputError, match=r"test\.jsonl:2 \(column 'id'\): train row inside test: found 'a', .*train\.jsonl:1"
    ):
        ingested(reader={"kind": "jsonl"} | TEXT, train=[train], test=[test])


def test_empty_rows_may_be_kept(tmp_path: Path, ingested: Run) -> None:
    path = as_jsonl(tmp_path / "t.jsonl", [{"text": "x", "labels": ["a"]}, {"text": None, "labels": ["a"]}])
    dataset, _ = ingested(reader={"kind": "jsonl", "text": "text"}, train=[path], empty_rows="keep")
    assert [block.to_pylist() for block in dataset.text_blocks("train")] == [["x", ""]]


def test_asking_for_the_wrong_form_says_so(tmp_path: Path, ingested: Run) -> None:
    path = as_jsonl(tmp_path / "t.jsonl", ROWS)
    text, _ = ingested(reader={"kind": "jsonl"} | TEXT, train=[path])
    with pytest.raises(ConfigError, match="holds text rows, not vector rows"):
        text.sparse("train")
    vectors, _ = ingested(reader={"kind": "jsonl", "vector": "vector"}, train=[path])
    with pytest.raises(ConfigError, match="holds vector rows, not text"):
        next(vectors.text_blocks("train"))
    with pytest.raises(ValueError, match="name the text column or the vector column"):
        Source.model_validate({"reader": {"kind": "jsonl"}, "train": [path]})
