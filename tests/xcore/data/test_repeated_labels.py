"""A label that stands twice on a row counts once, whatever the format, unless that is to be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.data.dataset import Dataset
from xcore.errors import InputError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]

LABELS = [[2, 0, 2], [1], [], [0, 0, 0]]
EXPECTED = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]]


def xmc(folder: Path) -> dict[str, Any]:
    lines = [f"{','.join(map(str, labels))} 0:1" for labels in LABELS]
    (folder / "t.txt").write_text("4 1 3\n" + "\n".join(lines) + "\n")
    return {"reader": {"kind": "xmc"}, "train": [folder / "t.txt"]}


def libsvm(folder: Path) -> dict[str, Any]:
    (folder / "t.txt").write_text("".join(f"{','.join(map(str, labels))} 0:1\n" for labels in LABELS))
    return {"reader": {"kind": "libsvm"}, "train": [folder / "t.txt"]}


def xmc_split(folder: Path) -> dict[str, Any]:
    (folder / "X").write_text("4 1\n" + "0:1\n" * 4)
    lines = [" ".join(f"{label}:1" for label in labels) for labels in LABELS]
    (folder / "Y").write_text("4 3\n" + "\n".join(lines) + "\n")
    return {"reader": {"kind": "xmc-split"}, "train": [{"features": folder / "X", "labels": folder / "Y"}]}


def npz(folder: Path) -> dict[str, Any]:
    flat, offsets = [label for labels in LABELS for label in labels], np.cumsum([0, *map(len, LABELS)])
    sp.save_npz(folder / "X.npz", sp.csr_array(np.ones((4, 1))))
    sp.save_npz(folder / "Y.npz", sp.csr_array((np.ones(len(flat)), flat, offsets), (4, 3)))
    return {"reader": {"kind": "npz"}, "train": [{"features": folder / "X.npz", "labels": folder / "Y.npz"}]}


def jsonl(folder: Path) -> dict[str, Any]:
    rows = [json.dumps({"text": "x", "labels": [str(label) for label in labels]}) for labels in LABELS]
    (folder / "t.jsonl").write_text("\n".join(rows))
    return {"reader": {"kind": "jsonl", "text": "text"}, "train": [folder / "t.jsonl"]}


@pytest.mark.parametrize("source", [xmc, libsvm, xmc_split, npz, jsonl])
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_repeated_label_is_dropped_and_counted_or_refused(
    source: Callable[[Path], dict[str, Any]], block_bytes: int, tmp_path: Path, ingested: Run
) -> None:
    fields = source(tmp_path)
    dataset, counts = ingested(**fields, block_bytes=block_bytes)
    np.testing.assert_array_equal(dataset.Y("train").toarray(), EXPECTED)
    assert counts["repeated_labels"] == {"train": 3}
    assert counts["notes"] == ["3 labels that stood twice on a row were counted once."]
    assert dataset.label_table()["train_count"].to_pylist() == [2, 1, 1]
    problem = r":[12] \(column 'labels'\): repeated label id: found '2', .*repeated_labels: drop"
    with pytest.raises(InputError, match=problem):
        ingested(**fields, block_bytes=block_bytes, repeated_labels="fail")


def test_labels_of_rows_that_are_set_aside_do_not_count(tmp_path: Path, ingested: Run) -> None:
    (tmp_path / "t.txt").write_text("2 1 3\n1,1 0:1\n2,2\n")
    options = {"on_bad_row": "quarantine", "max_bad_share": 1.0}
    _, counts = ingested(reader={"kind": "xmc"}, train=[tmp_path / "t.txt"], **options)
    assert counts["repeated_labels"] == {"train": 1}
