"""Input that is wrong in ways no writer intends: it is refused with its place, in bounded memory, and never misread."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from tasks.ingest import dataset_recipe
from xcore.data.dataset import Dataset
from xcore.data.readers import streams
from xcore.data.source import Source
from xcore.errors import ConfigError, EyrieError, InputError, NotEnoughMemory

Run = Callable[..., tuple[Dataset, dict[str, Any]]]

JSONL = {"kind": "jsonl", "text": "text", "id": "id"}
CSV = {"kind": "csv", "text": "text", "label_delimiter": ";"}
TWO_ROWS = b"0 0:1 1:2\n1 1:1\n"


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def npz(folder: Path, name: str, **changed: Any) -> Path:
    """A matrix file of two rows with some arrays replaced."""
    matrix = sp.csr_array(np.eye(2, 3, dtype=np.float32))
    arrays = {
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "format": b"csr",
        "shape": (2, 3),
        "data": matrix.data,
    }
    np.savez(folder / name, **arrays | changed)
    return folder / name


@pytest.mark.parametrize(
    "value", ["0.\f5", "3.14\v159", "\f0.5", "1_0", "0x1p3", "5e", "1\x1c", "0." + "5" * 2000 + "x"]
)
def test_what_is_not_a_decimal_number_is_never_read_as_one(tmp_path: Path, ingested: Run, value: str) -> None:
    path = put(tmp_path, "rows.txt", f"0 1:{value} 2:1\n1 1:1\n".encode())
    with pytest.raises(InputError, match=r"rows\.txt:1:\d+: (not a number|undecodable)"):
        ingested(reader={"kind": "libsvm"}, train=[path])


def test_a_long_number_is_read_to_its_end(tmp_path: Path, ingested: Run) -> None:
    path = put(tmp_path, "rows.txt", f"0 1:0.{'0' * 1500}5e1501 2:1\n1 1:1\n".encode())
    dataset, _ = ingested(reader={"kind": "libsvm"}, train=[path])
    assert dataset.sparse("train").data[0] == 5.0


def test_a_repeated_id_with_thousands_of_leading_zeros_is_found(tmp_path: Path, ingested: Run) -> None:
    path = put(tmp_path, "rows.txt", b"0 " + b"0" * 5000 + b"1:1 1:2\n")
    with pytest.raises(InputError, match=r"rows\.txt:1:\d+: repeated feature id"):
        ingested(reader={"kind": "libsvm"}, train=[path])


@pytest.mark.parametrize(
    "header", ["2 3 " + "9" * 5000, "2 3 9999999999", "2\f3 4", "2 3 ٤", "2 3 4" + " " * 9000 + "5"]
)
def test_an_odd_header_is_one_message(tmp_path: Path, ingested: Run, header: str) -> None:
    with pytest.raises(InputError, match=r"rows\.txt:1:1: not a header"):
        ingested(reader={"kind": "xmc"}, train=[put(tmp_path, "rows.txt", header.encode() + b"\n" + TWO_ROWS)])


def test_a_header_with_more_labels_than_memory_is_refused_before_the_rows_are_read(
    tmp_path: Path, ingested: Run
) -> None:
    path = put(tmp_path, "rows.txt", b"2 3 2000000000\n" + TWO_ROWS)
    with pytest.raises(NotEnoughMemory, match=r"2,000,000,000 labels.*would take about 200\.0 GB.*header"):
        ingested(reader={"kind": "xmc"}, train=[path])


@pytest.mark.parametrize("reader", [{"kind": "libsvm"}, {"kind": "xmc"}, JSONL, CSV], ids=lambda reader: reader["kind"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_one_endless_line_is_refused(
    tmp_path: Path, ingested: Run, monkeypatch: pytest.MonkeyPatch, reader: dict[str, Any], packed: bool
) -> None:
    monkeypatch.setattr(streams, "LONGEST_LINE", 1 << 20)
    content = b"1 3 3 " * (1 << 19)
    path = put(tmp_path, "rows.gz" if packed else "rows", gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=r"line too long|not a header"):
        ingested(reader=reader, train=[path], block_bytes=1 << 16)


def test_a_compression_bomb_is_refused(tmp_path: Path, ingested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EXPANSION_FROM", 1 << 20)
    path = put(tmp_path, "rows.gz", gzip.compress(b"\n" * (1 << 22)))
    with pytest.raises(InputError, match=r"suspicious compression.*more than"):
        ingested(reader={"kind": "libsvm"}, train=[path], block_bytes=1 << 16)


def test_a_block_of_many_short_lines_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_LINES", 3)
    path = put(tmp_path, "rows", b"a\n" * 7 + b"b")
    blocks = list(streams.line_blocks(path, 1 << 20))
    assert [(block.first_line, block.text.count(b"\n")) for block in blocks] == [(1, 3), (4, 3), (7, 1), (8, 0)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indices": np.array([np.nan, 1.0])}, "wrong array.*whole numbers"),
        ({"indices": np.array([1.7, 1.0])}, "wrong array.*whole numbers"),
        ({"data": np.array(["1", "2"])}, "wrong array.*numbers"),
        ({"data": np.array([1j, 2])}, "wrong array"),
        ({"shape": (2, 10**12)}, "wrong shape"),
        ({"shape": (2.0, 3.0)}, "wrong array"),
        ({"shape": (5, 3)}, "truncated or damaged file"),
        ({"shape": (2, -3)}, "wrong shape"),
        ({"indptr": np.array([[0, 1], [2, 3]])}, "wrong array"),
        ({"format": np.array(["csr", "csr"])}, "not a CSR matrix"),
        ({"data": np.array([None, 1], object)}, "wrong array"),
    ],
)
def test_an_npz_with_odd_arrays_is_refused(
    tmp_path: Path, ingested: Run, changed: dict[str, Any], message: str
) -> None:
    pair = {"features": npz(tmp_path, "X.npz", **changed), "labels": npz(tmp_path, "Y.npz")}
    with pytest.raises(InputError, match=rf"X\.npz.*{message}"):
        ingested(reader={"kind": "npz"}, train=[pair])


def test_an_npz_whose_header_claims_too_much_is_refused_without_reading_it(tmp_path: Path, ingested: Run) -> None:
    path = npz(tmp_path, "X.npz")
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "lie.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, header.getvalue() if name == "indptr.npy" else old.read(name))
    pair = {"features": tmp_path / "lie.npz", "labels": npz(tmp_path, "Y.npz")}
    with pytest.raises(InputError, match=r"indptr.*1,000,000,000,000 entries"):
        ingested(reader={"kind": "npz"}, train=[pair])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "text": "x", "text": "y", "labels": []}', "repeated key"),
        ('{"id": "a", "text": "x\\u0000y", "labels": []}', "NUL character"),
        ('{"id": "a", "text": "x\\ud800y", "labels": []}', "lone surrogate"),
        ('{"id": "a", "text": "x", "labels": ["\\udfff"]}', "lone surrogate"),
        ('{"id": "a", "text": "x", "labels": [null]}', "missing or wrong label"),
        ('{"id": "a", "text": "x", "labels": [' + "9" * 5000 + "]}", "thousands of digits"),
        ('{"id": ' + "9" * 4000 + ', "text": "x", "labels": []}', "64 bits"),
        ("[" * 100_000, "not a row|not JSON"),
    ],
)
def test_an_odd_json_row_is_one_message_with_its_line(tmp_path: Path, ingested: Run, line: str, message: str) -> None:
    good = json.dumps({"id": "b", "text": "x", "labels": ["1"]})
    with pytest.raises(InputError, match=rf"rows\.jsonl:2.*({message})"):
        ingested(reader=JSONL, train=[put(tmp_path, "rows.jsonl", f"{good}\n{line}\n".encode())])


@pytest.mark.parametrize("vector", ["1_000 2", "1 ٣", "1 0x2", "1 2\x1c"])
def test_only_plain_decimals_are_numbers_of_a_vector(tmp_path: Path, ingested: Run, vector: str) -> None:
    path = put(tmp_path, "rows.csv", f"v,labels\n1 2,a\n{vector},b\n".encode())
    with pytest.raises(InputError, match=r"rows\.csv:3.*not a vector"):
        ingested(reader={"kind": "csv", "vector": "v", "label_delimiter": ";"}, train=[path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbf", "empty file"),
        (b'text,"labels\nx,a\n', "not a CSV record"),
        (b"text,labels,text\nx,a,y\n", "repeated column"),
        (b"text,labels\nx\0y,a\n", "NUL character"),
        (b"\n\n", "missing column"),
    ],
)
def test_an_odd_csv_is_one_message(tmp_path: Path, ingested: Run, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=rf"rows\.csv.*{message}"):
        ingested(reader=CSV, train=[put(tmp_path, "rows.csv", content)])


@pytest.mark.parametrize("reader", [{"kind": "libsvm"}, {"kind": "xmc"}, JSONL], ids=lambda reader: reader["kind"])
def test_a_file_with_only_a_byte_order_mark_is_empty(tmp_path: Path, ingested: Run, reader: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="empty file"):
        ingested(reader=reader, train=[put(tmp_path, "rows", b"\xef\xbb\xbf")])


def test_nul_and_repeated_columns_of_parquet_are_refused(tmp_path: Path, ingested: Run) -> None:
    reader = {"kind": "parquet", "text": "text"}
    labels = pa.array([["a"], ["b", "c\0"]])
    pq.write_table(pa.table({"text": ["x", "y"], "labels": labels}), tmp_path / "nul.parquet")
    with pytest.raises(InputError, match=r"nul\.parquet:2 \(column 'labels'\): NUL character"):
        ingested(reader=reader, train=[tmp_path / "nul.parquet"])
    twice = pa.table([pa.array(["x"]), pa.array(["y"]), labels[:1]], ["text", "text", "labels"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="repeated column"):
        ingested(reader=reader, train=[tmp_path / "twice.parquet"])


def test_an_idx_header_with_impossible_sizes_is_refused(tmp_path: Path, ingested: Run) -> None:
    sizes = np.array([5, 2**31, 2**31, 2**31], ">u4").tobytes()
    pair = {
        "features": put(tmp_path, "images", bytes([0, 0, 8, 4]) + sizes),
        "labels": put(tmp_path, "classes", bytes([0, 0, 8, 1]) + np.array([5], ">u4").tobytes() + bytes(5)),
    }
    with pytest.raises(InputError, match="images too large"):
        ingested(reader={"kind": "idx"}, train=[pair])


READERS = [
    ({"kind": "libsvm"}, False), ({"kind": "xmc"}, False), (JSONL, False), (CSV, False),
    ({"kind": "parquet", "text": "text"}, False), ({"kind": "npz"}, True), ({"kind": "xmc-split"}, True),
    ({"kind": "idx"}, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "pairs"), READERS, ids=lambda value: value["kind"] if isinstance(value, dict) else ""
)
def test_a_folder_a_pipe_or_nothing_in_place_of_a_file_is_one_message(
    tmp_path: Path, ingested: Run, reader: dict[str, Any], pairs: bool
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path, "a folder"), (tmp_path / "pipe", "a pipe"), (tmp_path / "none", "no file")):
        part = {"features": path, "labels": path} if pairs else path
        with pytest.raises(InputError, match=message):
            ingested(reader=reader, train=[part])


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "x" * 5000])
def test_a_path_that_cannot_exist_is_one_message(ingested: Run, name: str) -> None:
    with pytest.raises(EyrieError):
        ingested(reader={"kind": "libsvm"}, train=[name])
    recipe = dataset_recipe(Source.model_validate({"reader": {"kind": "libsvm"}, "train": [name]}), 0)
    with pytest.raises(ConfigError, match="input file"):
        _ = recipe.id
