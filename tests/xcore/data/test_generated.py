from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xcore.data.dataset import Dataset
from xcore.data.readers.generated import ROWS_A_BLOCK
from xcore.data.source import Source
from xcore.numeric.matrices import list_parts, normalise_rows

Run = Callable[..., tuple[Dataset, dict[str, Any]]]
SMALL = {"kind": "generated", "n_train": 500, "n_test": 100, "n_labels": 30, "n_features": 300}


def files_of(dataset: Dataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dataset.directory.iterdir()}


def test_group_lists_are_the_merged_labels_of_their_members(ingested: Run) -> None:
    dataset, counts = ingested(reader=SMALL | {"group_size": 8})
    truth, groups = dataset.truth("train"), dataset.groups()
    assert truth is not None
    assert groups is not None
    for row in groups.to_pylist():
        merged = np.asarray(truth[row["members"]].sum(axis=0)).ravel()
        assert row["labels"] == np.flatnonzero(merged).tolist()
        assert row["counts"] == merged[merged > 0].tolist()
    _, members = list_parts(groups["members"])
    assert sorted(members.tolist()) == list(range(500))
    assert dataset.Y("train").nnz == 0
    assert dataset.Y("test").nnz > 100
    assert counts["groups"]["groups"] == 63


def test_groups_of_one_are_an_ordinary_labelled_dataset(ingested: Run) -> None:
    alone, _ = ingested(reader=SMALL | {"group_size": 1})
    grouped, _ = ingested(reader=SMALL | {"group_size": 4})
    assert alone.groups() is None
    assert alone.truth("train") is None
    truth = grouped.truth("train")
    np.testing.assert_array_equal(alone.Y("train").toarray(), truth.toarray() if truth is not None else None)


def test_the_seed_of_the_data_alone_decides_every_byte(ingested: Run) -> None:
    first, again, other = (
        files_of(ingested(reader=SMALL | {"seed": seed}, seed=run)[0]) for seed, run in ((1, 0), (1, 9), (2, 0))
    )
    assert first == again
    assert first["train.parquet"] != other["train.parquet"]


def test_rows_of_later_blocks_are_drawn_anew(ingested: Run) -> None:
    labels = ingested(reader=SMALL | {"n_train": 2 * ROWS_A_BLOCK, "group_size": 1})[0].Y("train")
    assert (labels[:ROWS_A_BLOCK] != labels[ROWS_A_BLOCK:]).nnz > 0


def test_ridge_on_the_true_labels_reaches_the_promised_precision(ingested: Run) -> None:
    dataset, _ = ingested(reader={"kind": "generated", "group_size": 1})
    X, Xt, Y, Yt = (
        *(normalise_rows(dataset.sparse(s)) for s in ("train", "test")),
        dataset.Y("train"),
        dataset.Y("test"),
    )
    W = np.linalg.solve((X.T @ X).toarray() + 0.5 * np.eye(X.shape[1]), (X.T @ Y).toarray())
    best = (Xt @ W).argmax(axis=1)
    assert 0.8 <= Yt.toarray()[np.arange(len(best)), best].mean() <= 0.92


def test_a_generated_source_reads_no_files() -> None:
    with pytest.raises(ValueError, match="a generated source reads no files"):
        Source.model_validate({"reader": SMALL, "train": ["x.txt"]})
    assert Source.model_validate({"reader": SMALL}).files() == []
