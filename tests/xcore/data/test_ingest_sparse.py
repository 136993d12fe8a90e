from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.errors import ConfigError, InputError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]

XMC_TRAIN = "3 4 3\n0,2 0:1.5 3:2\n1 1:-0.25\n 2:1e-3\n"
XMC_TEST = "1 4 3\n2 3:1\n"
X_TRAIN = [[1.5, 0, 0, 2], [0, -0.25, 0, 0], [0, 0, 1e-3, 0]]
Y_TRAIN = [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def matrix(n: int, d: int, density: float, seed: int) -> Any:
    made = sp.random_array((n, d), density=density, rng=np.random.default_rng(seed), dtype=np.float32, format="csr")
    made = sp.csr_array(made + sp.csr_array((np.ones(n), (np.arange(n), np.arange(n) % d)), (n, d)), dtype=np.float32)
    made.sort_indices()
    return made


def rows_text(X: Any, Y: Any | None = None, first: int = 0) -> str:
    lines = []
    for row in range(X.shape[0]):
        labels = "" if Y is None else ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]])) + " "
        at = slice(X.indptr[row], X.indptr[row + 1])
        pairs = zip(X.indices[at].tolist(), X.data[at].tolist(), strict=True)
        lines.append(labels + " ".join(f"{i + first}:{v!r}" for i, v in pairs))
    return "\n".join(lines) + "\n"


def assert_equal(ours: Any, expected: Any) -> None:
    assert ours.shape == expected.shape
    assert (ours.dtype, ours.indices.dtype, ours.indptr.dtype) == (np.float32, np.int32, np.int64)
    np.testing.assert_array_equal(ours.indptr, expected.indptr)
    np.testing.assert_array_equal(ours.indices, expected.indices)
    np.testing.assert_array_equal(ours.data, expected.data)


def files_of(dataset: Dataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dataset.directory.iterdir()}


def dense(array: Any) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = array.toarray()
    return result


def test_an_xmc_file_becomes_features_and_labels(tmp_path: Path, ingested: Run) -> None:
    train, test = put(tmp_path / "train.txt", XMC_TRAIN), put(tmp_path / "test.txt", XMC_TEST)
    dataset, counts = ingested(reader={"kind": "xmc"}, train=[train], test=[test])
    assert (dataset.form, dataset.n_features, dataset.n_labels, dataset.splits) == ("sparse", 4, 3, ["train", "test"])
    np.testing.assert_array_equal(dense(dataset.sparse("train")), np.array(X_TRAIN, np.float32))
    np.testing.assert_array_equal(dense(dataset.Y("train")), Y_TRAIN)
    np.testing.assert_array_equal(dense(dataset.Y("test")), [[0, 0, 1]])
    assert dataset.row_ids("train").to_pylist() == ["0", "1", "2"]
    assert dataset.label_table().to_pylist()[2] == {"id": "2", "name": "2", "parents": [], "train_count": 1}
    assert dataset.groups() is None
    assert dataset.truth("train") is None
    assert (counts["rows"], counts["nnz"]) == ({"train": 3, "test": 1}, {"train": 4, "test": 1})
    assert (counts["labels"], counts["features"], counts["label_nnz"]) == (3, 4, {"train": 3, "test": 1})
    assert counts["rows_without_labels"] == {"train": 1, "test": 0}
    with pytest.raises(ConfigError, match="has no dev split, only train, test"):
        dataset.sparse("dev")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 30), d=st.integers(1, 40), n_labels=st.integers(1, 20), seed=st.integers(0, 99), data=st.data())
def test_a_random_matrix_comes_back_equal_from_every_text_form_and_block_size(
    n: int, d: int, n_labels: int, seed: int, data: st.DataObject, tmp_path: Path, ingested: Run
) -> None:
    X, Y = matrix(n, d, 0.2, seed), matrix(n, n_labels, 0.1, seed + 1)
    Y.data[:] = 1
    block_bytes = data.draw(st.integers(8, 2000))
    pair = {
        "features": put(tmp_path / "X.txt", f"{n} {d}\n{rows_text(X)}"),
        "labels": put(tmp_path / "Y.txt", f"{n} {n_labels}\n{rows_text(Y)}"),
    }
    sources: list[dict[str, Any]] = [
        {"reader": {"kind": "xmc"}, "train": [put(tmp_path / "xmc.txt", f"{n} {d} {n_labels}\n{rows_text(X, Y)}")]},
        {
            "reader": {"kind": "libsvm", "first_index": 1, "n_features": d, "n_labels": n_labels},
            "train": [put(tmp_path / "libsvm.txt", rows_text(X, Y, first=1))],
        },
        {"reader": {"kind": "xmc-split"}, "train": [pair]},
    ]
    written = []
    for source in sources:
        dataset, _ = ingested(**source, block_bytes=block_bytes)
        assert_equal(dataset.sparse("train"), X)
        assert_equal(dataset.Y("train"), Y)
        written.append(files_of(dataset))
    assert written[0] == written[1] == written[2]


def test_the_block_size_changes_no_byte_and_neither_does_a_second_run(tmp_path: Path, ingested: Run) -> None:
    X, Y = matrix(9000, 50, 0.8, 1), matrix(9000, 30, 0.05, 2)  # more than a page of values in a row group
    X.data[:] = 1
    train = put(tmp_path / "train.txt", f"9000 50 30\n{rows_text(X, Y)}")
    runs = [
        files_of(ingested(reader={"kind": "xmc"}, train=[train], holdout={"test": 0.1}, block_bytes=size)[0])
        for size in (10_000, 1 << 24, 1 << 24)
    ]
    assert runs[0] == runs[1] == runs[2]
    assert set(runs[0]) == {"dataset.json", "labels.parquet", "train.parquet", "train_rows.parquet", "test.parquet",
                            "test_rows.parquet"}  # fmt: skip


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_read_like_plain_ones(suffix: str, tmp_path: Path, ingested: Run) -> None:
    plain = put(tmp_path / "train.txt", XMC_TRAIN)
    packed = tmp_path / f"packed.txt{suffix}"
    with pa.output_stream(str(packed), compression="gzip" if suffix == ".gz" else "zstd") as stream:
        stream.write(XMC_TRAIN.encode())
    assert packed.read_bytes() != plain.read_bytes()
    first, second = (ingested(reader={"kind": "xmc"}, train=[path])[0] for path in (plain, packed))
    assert files_of(first) == files_of(second)


def test_a_truncated_gzip_file_is_an_error_that_names_it(tmp_path: Path, ingested: Run) -> None:
    content = gzip.compress(("900 4 3\n" + "0 1:0.5 2:0.25\n" * 900).encode())
    cut = put(tmp_path / "cut.txt.gz", content[: len(content) // 2])
    with pytest.raises(InputError, match=r"cut\.txt\.gz:\d+: truncated or damaged file"):
        ingested(reader={"kind": "xmc"}, train=[cut])


def test_several_files_are_one_dataset_in_the_given_order(tmp_path: Path, ingested: Run) -> None:
    parts = [put(tmp_path / "b.txt", "1 4 3\n0 0:1\n"), put(tmp_path / "a.txt", "2 4 3\n1 1:2\n2 2:3\n")]
    dataset, _ = ingested(reader={"kind": "xmc"}, train=parts)
    np.testing.assert_array_equal(dense(dataset.sparse("train")), [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0]])
    assert dataset.row_ids("train").to_pylist() == ["0", "1", "2"]


def test_libsvm_ids_start_at_one_unless_a_zero_occurs_in_any_file(tmp_path: Path, ingested: Run) -> None:
    train, test = put(tmp_path / "train", "0 1:1 3:1\n"), put(tmp_path / "test", "1 2:1\n")
    dataset, _ = ingested(reader={"kind": "libsvm"}, train=[train], test=[test])
    assert (dataset.n_features, dataset.n_labels) == (3, 2)
    np.testing.assert_array_equal(dense(dataset.sparse("test")), [[0, 1, 0]])
    zero = put(tmp_path / "zero", "1 0:1\n")
    dataset, _ = ingested(reader={"kind": "libsvm"}, train=[train], test=[zero])
    np.testing.assert_array_equal(dense(dataset.sparse("train")), [[0, 1, 0, 1]])


def test_libsvm_with_a_feature_count_needs_to_know_the_first_index() -> None:
    with pytest.raises(ValueError, match="say whether feature ids start at 0 or 1"):
        Source.model_validate({"reader": {"kind": "libsvm", "n_features": 5}, "train": ["x"]})


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_pairs_are_streamed_in_blocks_and_come_back_equal(compressed: bool, tmp_path: Path, ingested: Run) -> None:
    X, Y, labels = matrix(300, 40, 0.2, 3), matrix(300, 12, 0.1, 4), matrix(12, 9, 0.3, 5)
    Y.data[:] = 1
    Y.data[5] = 0  # a stored zero is no label
    pair = {"features": tmp_path / "X.npz", "labels": tmp_path / "Y.npz"}
    sp.save_npz(pair["features"], X.astype(np.float64), compressed=compressed)
    sp.save_npz(pair["labels"], Y, compressed=compressed)
    sp.save_npz(tmp_path / "L.npz", labels, compressed=compressed)
    dataset, _ = ingested(reader={"kind": "npz"}, train=[pair], label_features=tmp_path / "L.npz", block_bytes=200)
    Y.eliminate_zeros()
    assert_equal(dataset.sparse("train"), X)
    assert_equal(dataset.Y("train"), Y)
    assert_equal(dataset.label_features(), labels)


def test_the_split_form_may_bring_label_features(tmp_path: Path, ingested: Run) -> None:
    pair = {"features": put(tmp_path / "X", "2 3\n0:1\n2:1\n"), "labels": put(tmp_path / "Y", "2 2\n0:1\n1:1\n")}
    features = put(tmp_path / "L", "2 5\n4:0.5\n\n")
    dataset, _ = ingested(reader={"kind": "xmc-split"}, train=[pair], label_features=features)
    label_features = dataset.label_features()
    np.testing.assert_array_equal(dense(label_features), [[0, 0, 0, 0, 0.5], [0] * 5])
    with pytest.raises(InputError, match="number of labels: found 3, expected 2, as the labels file says"):
        ingested(reader={"kind": "xmc-split"}, train=[pair], label_features=put(tmp_path / "M", "3 1\n0:1\n\n\n"))


def test_a_holdout_moves_exact_shares_and_keeps_row_and_label_together(tmp_path: Path, ingested: Run) -> None:
    lines = "".join(f"{row % 10} {row}:1\n" for row in range(200))
    train = put(tmp_path / "train.txt", f"200 200 10\n{lines}")
    source = {"reader": {"kind": "xmc"}, "train": [train], "holdout": {"dev": 0.1, "test": 0.25}}
    dataset, counts = ingested(**source, seed=5)
    assert counts["rows"] == {"train": 130, "dev": 20, "test": 50}
    seen = []
    for split in dataset.splits:
        X, Y = dataset.sparse(split), dataset.Y(split)
        np.testing.assert_array_equal(Y.indices, X.indices % 10)
        assert dataset.row_ids(split).to_pylist() == [str(row) for row in X.indices]
        seen += X.indices.tolist()
    assert sorted(seen) == list(range(200))
    again, other = ingested(**source, seed=5)[0], ingested(**source, seed=6)[0]
    assert files_of(again) == files_of(dataset)
    assert other.row_ids("test").to_pylist() != dataset.row_ids("test").to_pylist()


def test_test_rows_with_the_features_of_a_train_row_are_counted_or_refused(tmp_path: Path, ingested: Run) -> None:
    train, test = put(tmp_path / "train.txt", XMC_TRAIN), put(tmp_path / "test.txt", "2 4 3\n2 3:1\n0 1:-0.25\n")
    source = {"reader": {"kind": "xmc"}, "train": [train], "test": [test]}
    assert ingested(**source)[1]["rows_same_as_in_train"] == {"test": 1}
    with pytest.raises(InputError, match=r"test\.txt:3: train row inside test: found the features of .*train\.txt:3"):
        ingested(**source, same_rows_in_test="fail")


def test_rows_of_blanks_after_the_last_are_no_rows(tmp_path: Path, ingested: Run) -> None:
    dataset, _ = ingested(reader={"kind": "xmc"}, train=[put(tmp_path / "t", "1 4 3\n0 1:1\n\n  \n")])
    assert dataset.n_rows("train") == 1


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ("", "", "empty file: found 0 bytes"),
        ("0,1 2:3\n", ":1:1", "not a header: found '0,1 2:3', expected whole numbers rows features labels"),
        (
            "2 4 3\n0 1:1\n",
            ":3",
            "truncated file, or wrong count in the header: found the end of the file after 1 rows",
        ),
        ("1 4 3\n0 1:1\n1 1:1\n", ":3", "wrong count in the header: found one row more, expected 1 rows"),
        ("1 4 3\n0 1:1 4:1\n", ":2:7", "feature id out of range: found '4:1', expected an id from 0 to 3"),
        ("1 4 3\n0,3 1:1\n", ":2:3", "label id out of range: found '3', expected an id from 0 to 2"),
        ("1 4 3\n0 1:nan\n", ":2:5", "NaN value: found 'nan', expected a finite number"),
        ("2 4 3\n0 1:1\n1\n", ":3", "row with no features"),
        ("2 4 3\n0 1:1\n\n", ":3", "row with no features"),
        (b"1 4 3\n0 1:\xff\n", ":2:5", "undecodable bytes: found '\\\\xff'"),
        (b"\x1f\x8b\x08rubbish", ":1:1", "not a header"),
    ],
)
def test_bad_xmc_input_is_one_error_with_its_place_and_leaves_nothing(
    content: str | bytes, place: str, problem: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "train.txt", content)
    target = tmp_path / "dataset"
    target.mkdir()
    source = Source.model_validate({"reader": {"kind": "xmc"}, "train": [path]})
    with pytest.raises(InputError) as caught:
        ingest(source, target, np.random.default_rng(0), silent)
    assert str(caught.value).startswith(f"{path}{place}: {problem}")
    assert list(target.iterdir()) == []


def test_files_must_agree_about_their_spaces(tmp_path: Path, ingested: Run) -> None:
    train, test = put(tmp_path / "train.txt", XMC_TRAIN), put(tmp_path / "test.txt", "1 5 3\n2 3:1\n")
    with pytest.raises(
        InputError, match=r"test\.txt:1: files disagree about the number of features: found 5, expected 4"
    ):
        ingested(reader={"kind": "xmc"}, train=[train], test=[test])
    pair = {"features": put(tmp_path / "X", "2 3\n0:1\n1:1\n"), "labels": put(tmp_path / "Y", "1 2\n0:1\n")}
    with pytest.raises(InputError, match="files disagree about the number of rows: found 1, expected 2"):
        ingested(reader={"kind": "xmc-split"}, train=[pair])


def test_bad_npz_input_is_named(tmp_path: Path, ingested: Run) -> None:
    X, Y = matrix(5, 4, 0.3, 0), matrix(5, 3, 0.3, 1)
    pair = {"features": tmp_path / "X.npz", "labels": tmp_path / "Y.npz"}

    def refused(message: str, X: Any = X, Y: Any = Y) -> None:
        sp.save_npz(pair["features"], X)
        sp.save_npz(pair["labels"], Y)
        with pytest.raises(InputError, match=message):
            ingested(reader={"kind": "npz"}, train=[pair], repeated_labels="fail")

    infinite, outside, twice = X.copy(), Y.copy(), Y.copy()
    infinite.data[X.indptr[2]] = np.inf
    refused(r"X\.npz:3 \(column 'features'\): infinite value: found inf", X=infinite)
    outside.indices[Y.indptr[4]] = 7
    refused(r"Y\.npz:5 \(column 'labels'\): label id out of range: found 7, expected an id below 3", Y=outside)
    outside.indices[Y.indptr[4]] = -1
    refused(r"Y\.npz:5 \(column 'labels'\): negative label id: found -1", Y=outside)
    wide = sp.csr_array((np.ones(6), np.array([0, 1, 2, 2, 0, 1]), np.array([0, 1, 2, 4, 5, 6])), (5, 3))
    refused(r"Y\.npz:3 \(column 'labels'\): repeated label id: found '2'", Y=wide)
    refused("not a CSR matrix: found b'csc'", X=X.tocsc())
    refused("number of rows: found 4, expected 5", Y=twice[:4])
    whole = pair["features"].read_bytes()
    for size in (len(whole) // 2, 0):
        pair["features"].write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"X\.npz: truncated or damaged file"):
            ingested(reader={"kind": "npz"}, train=[pair])
    with zipfile.ZipFile(pair["features"], "w", zipfile.ZIP_STORED) as archive, io.BytesIO(whole) as old:
        for name in ("indptr.npy", "indices.npy", "data.npy", "format.npy", "shape.npy"):
            archive.writestr(name, zipfile.ZipFile(old).read(name))
    flipped = bytearray(pair["features"].read_bytes())
    flipped[flipped.find(X.data.tobytes())] ^= 1
    pair["features"].write_bytes(flipped)
    sp.save_npz(pair["labels"], Y)
    with pytest.raises(InputError, match=r"X\.npz: truncated or damaged file: found Bad CRC-32 for file 'data"):
        ingested(reader={"kind": "npz"}, train=[pair])
    pair["features"].unlink()
    with pytest.raises(InputError, match=r"X\.npz: missing file"):
        ingested(reader={"kind": "npz"}, train=[pair])


def test_a_part_must_have_the_form_the_reader_needs() -> None:
    with pytest.raises(ValueError, match="needs a pair"):
        Source.model_validate({"reader": {"kind": "npz"}, "train": ["x.npz"]})
    with pytest.raises(ValueError, match="needs one path"):
        Source.model_validate({"reader": {"kind": "xmc"}, "train": [{"features": "a", "labels": "b"}]})
    with pytest.raises(ValueError, match="no files"):
        Source.model_validate({"reader": {"kind": "xmc"}})
    with pytest.raises(ValueError, match="choose one of the two"):
        Source.model_validate({"reader": {"kind": "xmc"}, "train": ["a"], "test": ["b"], "holdout": {"test": 0.1}})


def test_source_names_every_input_file() -> None:
    source = Source.model_validate(
        {
            "reader": {"kind": "npz"},
            "train": [{"features": "X", "labels": "Y"}],
            "test": [{"features": "Xt", "labels": "Yt"}],
            "labels": "labels.csv",
            "groups": {"path": "groups.csv"},
            "label_features": "L",
        }
    )
    assert source.files() == [Path(name) for name in ("X", "Y", "Xt", "Yt", "labels.csv", "groups.csv", "L")]
    assert Source.model_validate(source.options()) == source


def test_a_directory_with_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    source = Source.model_validate({"reader": {"kind": "xmc"}, "train": [put(tmp_path / "train.txt", XMC_TRAIN)]})
    with pytest.raises(ConfigError, match="must be empty"):
        ingest(source, tmp_path, np.random.default_rng(0), silent)
    assert (tmp_path / "train.txt").exists()


def test_real_bibtex_has_its_published_sizes(real_data: Callable[[str], Path], ingested: Run) -> None:
    folder = real_data("bibtex")
    dataset, counts = ingested(reader={"kind": "xmc"}, train=[folder / "train.txt"], test=[folder / "test.txt"])
    assert (counts["rows"], dataset.n_features, dataset.n_labels) == ({"train": 4880, "test": 2515}, 1836, 159)
    from sklearn.datasets import load_svmlight_file

    with (folder / "test.txt").open("rb") as file:
        file.readline()
        X, labels = load_svmlight_file(file, n_features=1836, dtype=np.float32, multilabel=True, zero_based=True)
    assert_equal(dataset.sparse("test"), sp.csr_array(X))
    Y = dataset.Y("test")
    assert [tuple(map(float, Y.indices[a:b])) for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)] == labels
