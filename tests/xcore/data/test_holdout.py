"""Rows that are held out of train: by default where there are no test files, and whole bags where there are bags."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.data.dataset import Dataset
from xcore.data.holdout import held_out
from xcore.data.source import Source
from xcore.errors import ConfigError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]

READER = {"kind": "jsonl", "text": "text", "id": "id"}
GROUPED = READER | {"group": "page"}


def rows(path: Path, n: int, first: int = 0, page_size: int = 5) -> Path:
    content = [
        {"id": str(i), "text": f"text {i}", "labels": [f"l{i % 7}"], "page": f"p{i // page_size}"}
        for i in range(first, first + n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return path


def test_without_test_files_a_tenth_of_the_rows_is_held_out_and_that_is_said(tmp_path: Path, ingested: Run) -> None:
    train = rows(tmp_path / "t.jsonl", 200)
    _, counts = ingested(reader=READER, train=[train], holdout={})
    assert counts["rows"] == {"train": 180, "test": 20}
    assert counts["held_out"] == {"test": 20}
    assert "No test files were given: 20 rows of train (10%) were held out as test." in counts["notes"][0]
    none, counts = ingested(reader=READER, train=[train], holdout={"test": 0})
    assert none.splits == ["train"]
    assert counts["notes"] == []
    _, counts = ingested(reader=READER, train=[train], holdout={"test": 0.25})
    assert (counts["rows"]["test"], counts["notes"]) == (50, [])
    _, counts = ingested(reader=READER, train=[train], test=[rows(tmp_path / "e.jsonl", 3, 900)], holdout={})
    assert (counts["rows"], counts["held_out"]) == ({"train": 200, "test": 3}, {})


def test_rows_that_are_added_later_leave_nearly_all_held_out_rows_held_out() -> None:
    before, after = (held_out(n, [0.1, 0.1], np.random.default_rng(5)) for n in (1000, 1200))
    assert [(before == part).sum() for part in (1, 2)] == [100, 100]
    assert [(after == part).sum() for part in (1, 2)] == [120, 120]
    assert (before[before == 1] == after[:1000][before == 1]).mean() > 0.9
    assert np.array_equal(before, held_out(1000, [0.1, 0.1], np.random.default_rng(5)))
    assert not np.array_equal(before, held_out(1000, [0.1, 0.1], np.random.default_rng(6)))


def test_even_two_rows_give_a_row_to_test_on(tmp_path: Path, ingested: Run) -> None:
    _, counts = ingested(reader=READER, train=[rows(tmp_path / "t.jsonl", 2)], holdout={})
    assert counts["rows"] == {"train": 1, "test": 1}


def test_whole_groups_are_held_out_and_are_bags_of_their_split(tmp_path: Path, ingested: Run) -> None:
    train = rows(tmp_path / "t.jsonl", 200)
    dataset, counts = ingested(reader=GROUPED, train=[train], holdout={"dev": 0.1, "test": 0.2}, seed=3)
    assert counts["rows"] == {"train": 140, "dev": 20, "test": 40}
    assert counts["bags"] == {"dev": 4, "test": 8}
    pages = set()
    for split in dataset.splits:
        bags = dataset.bags(split)
        assert bags is not None
        ids = np.array(dataset.row_ids(split).to_pylist(), int)
        assert bags.members.shape == (len(bags.ids), len(ids))
        for page, members in zip(bags.ids, np.split(bags.members.indices, bags.members.indptr[1:-1]), strict=True):
            assert ids[members].tolist() == [5 * int(page[1:]) + i for i in range(5)]
        assert not pages & set(bags.ids)
        pages |= set(bags.ids)
    assert len(pages) == 40
    groups = dataset.groups()
    assert groups is not None
    assert groups.num_rows == 28
    assert dataset.Y("test").nnz == 40


def test_bags_of_test_files_are_kept_where_the_files_have_them(tmp_path: Path, ingested: Run) -> None:
    train = rows(tmp_path / "t.jsonl", 20)
    with_pages, without = rows(tmp_path / "e.jsonl", 7, 105), tmp_path / "f.jsonl"
    without.write_text('{"id": "z", "text": "no page", "labels": []}\n')
    dataset, counts = ingested(reader=GROUPED, train=[train], dev=[without], test=[without_id(without), with_pages])
    bags = dataset.bags("test")
    assert bags is not None
    assert bags.ids == ["p21", "p22"]
    assert bags.members.toarray().tolist() == [[0, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]]
    assert dataset.bags("dev") is None
    assert counts["bags"] == {"test": 2}
    train_bags = dataset.bags("train")
    assert train_bags is not None
    assert train_bags.ids == ["p0", "p1", "p2", "p3"]
    with pytest.raises(ConfigError, match="has no test split"):
        ingested(reader=READER, train=[train])[0].bags("test")


def without_id(path: Path) -> Path:
    """The same row under another id, in a file of its own."""
    other = path.with_name("g.jsonl")
    other.write_text(path.read_text().replace('"z"', '"y"'))
    return other


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_one_split_may_differ_in_whether_they_have_bags(kind: str, tmp_path: Path, ingested: Run) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    def table(name: str, first: int, **more: list[str]) -> Path:
        columns = {"text": [f"t{first}", f"t{first + 1}"], "labels": ["a", "b"], **more}
        path = tmp_path / f"{name}.{kind}"
        pa.csv.write_csv(pa.table(columns), path) if kind == "csv" else pq.write_table(pa.table(columns), path)
        return path

    reader = {"kind": kind, "text": "text", "group": "page", "label_delimiter": ";"}
    train = table("t", 0, page=["p", "q"])
    dataset, _ = ingested(reader=reader, train=[train], test=[table("e", 2), table("f", 4, page=["q", "q"])])
    bags = dataset.bags("test")
    assert bags is not None
    assert (bags.ids, bags.members.toarray().tolist()) == (["q"], [[0, 0, 1, 1]])


def test_members_that_a_file_names_may_be_held_out(tmp_path: Path, ingested: Run) -> None:
    """Overlapping groups go together; the file's members are matched before rows are held out."""
    groups = tmp_path / "g.jsonl"
    members = {"a": range(8), "b": range(6, 12), "c": range(20, 24), "d": range(30, 34)}
    groups.write_text("".join(json.dumps({"id": key, "members": list(m)}) + "\n" for key, m in members.items()))
    dataset, counts = ingested(
        reader=READER, train=[rows(tmp_path / "t.jsonl", 40)], groups=groups, holdout={"test": 0.5}
    )
    assert counts["rows"] == {"train": 20, "test": 20}
    test = {int(key) for key in dataset.row_ids("test").to_pylist()}
    for linked in (range(12), range(20, 24), range(30, 34)):
        assert test.issuperset(linked) or test.isdisjoint(linked)
    table, bags = dataset.groups(), dataset.bags("test")
    assert table is not None
    assert sorted(table["id"].to_pylist() + ([] if bags is None else bags.ids)) == list("abcd")


def test_a_split_that_will_not_be_there_is_refused_with_what_to_set(tmp_path: Path, ingested: Run) -> None:
    train = rows(tmp_path / "t.jsonl", 20)
    plain = Source.model_validate({"reader": READER, "train": [train]})
    plain.need_split("test", "evaluation.split")
    with pytest.raises(ConfigError, match=r"evaluation\.split is dev, but the data has no dev split: name dev files"):
        plain.need_split("dev", "evaluation.split")
    none = Source.model_validate({"reader": READER, "train": [train], "holdout": {"test": 0, "dev": 0.1}})
    none.need_split("dev", "promotion.split")
    with pytest.raises(ConfigError, match=r"promotion\.split is test, .*data\.holdout\.test, such as 0\.1"):
        none.need_split("test", "promotion.split")
    grouped = Source.model_validate({"reader": GROUPED, "train": [train], "row_labels": "group"})
    with pytest.raises(ConfigError, match=r"set data\.row_labels to own if"):
        grouped.need_split("test", "evaluation.split")
    dataset, _ = ingested(reader=READER, train=[train])
    dataset.need_split("train", "evaluation.split")
    with pytest.raises(
        ConfigError, match=r"evaluation\.split is test, but the dataset .* has no test split, only train"
    ):
        dataset.need_split("test", "evaluation.split")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 40),
    st.lists(st.lists(st.integers(0, 39), max_size=6), max_size=8),
    st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    st.integers(0, 3),
)
def test_no_bag_is_ever_split(n: int, bags: list[list[int]], shares: tuple[float, float], seed: int) -> None:
    lists = [sorted({row for row in bag if row < n}) for bag in bags]
    flat, offsets = [row for bag in lists for row in bag], np.cumsum([0, *map(len, lists)])
    members = sp.csr_array((np.ones(len(flat)), flat, offsets), shape=(len(lists), n))
    parts = held_out(n, shares, np.random.default_rng(seed), members)
    for bag in lists:
        assert len(set(parts[bag].tolist())) <= 1
    alone = held_out(n, shares, np.random.default_rng(seed))
    for part, share in enumerate(shares, 1):
        if share and sum(max(1, round(s * n)) for s in shares if s) <= n:
            assert (alone == part).sum() == max(1, round(share * n))
        if not share:
            assert not (parts == part).any()


def test_blocks_of_any_size_give_the_same_files(tmp_path: Path, ingested: Run) -> None:
    train, test = rows(tmp_path / "t.jsonl", 60), rows(tmp_path / "e.jsonl", 12, 100)
    made = [
        ingested(reader=GROUPED, train=[train], test=[test], holdout={"dev": 0.2}, block_bytes=size)[0]
        for size in (1, 300, 1 << 20)
    ]
    contents = [{path.name: path.read_bytes() for path in dataset.directory.iterdir()} for dataset in made]
    assert {"groups.parquet", "dev_bags.parquet", "test_bags.parquet", "train_truth.parquet"} <= contents[0].keys()
    assert contents[0] == contents[1] == contents[2]
