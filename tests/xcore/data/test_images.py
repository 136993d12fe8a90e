"""Images: idx files in, uint8 arrays out."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from xcore.data.dataset import Dataset
from xcore.errors import ConfigError, InputError

Run = Callable[..., tuple[Dataset, dict[str, Any]]]
Pixels = npt.NDArray[np.uint8]

CODES = {"uint8": 8, "int16": 11, "int32": 12, "float32": 13}


def idx(path: Path, array: npt.NDArray[Any]) -> Path:
    """An idx file, compressed if its name says so."""
    header = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def pictures(n: int, *shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def pair(folder: Path, images: npt.NDArray[Any], classes: Any, kind: str = "uint8", end: str = "") -> dict[str, Path]:
    return {
        "features": idx(folder / f"images{end}", images),
        "labels": idx(folder / f"classes{end}", np.array(classes, kind)),
    }


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
def test_images_come_back_as_they_were(end: str, block_bytes: int, tmp_path: Path, ingested: Run) -> None:
    images, classes = pictures(9, 4, 3), [3, 1, 0, 2, 2, 1, 0, 3, 1]
    train = pair(tmp_path, images[:7], classes[:7], end=end)
    (tmp_path / "test").mkdir()
    test = pair(tmp_path / "test", images[7:], classes[7:], end=end)
    dataset, counts = ingested(reader={"kind": "idx"}, train=[train], test=[test], block_bytes=block_bytes)
    assert (dataset.form, dataset.image_shape, dataset.n_features, dataset.n_labels) == ("image", (4, 3, 1), 12, 4)
    assert dataset.images("train").dtype == np.uint8
    np.testing.assert_array_equal(dataset.images("train"), images[:7, :, :, None])
    np.testing.assert_array_equal(dataset.images("test"), images[7:, :, :, None])
    np.testing.assert_array_equal(np.concatenate(list(dataset.blocks("train"))), dataset.images("train"))
    assert dataset.Y("train").indices.tolist() == classes[:7]
    assert dataset.label_texts() == ["0", "1", "2", "3"]
    assert counts["nnz"] == {"train": 84, "test": 24}


def test_images_with_channels_and_many_classes(tmp_path: Path, ingested: Run) -> None:
    images = pictures(3, 2, 5, 3)
    part = pair(tmp_path, images, [0, 70_000, 5], "int32")
    dataset, _ = ingested(reader={"kind": "idx", "n_labels": 70_001}, train=[part])
    assert dataset.image_shape == (2, 5, 3)
    np.testing.assert_array_equal(dataset.images("train"), images)
    assert dataset.Y("train").indices.tolist() == [0, 70_000, 5]
    assert dataset.n_labels == 70_001


def test_rows_are_held_out_and_equal_images_are_found(tmp_path: Path, ingested: Run) -> None:
    images = pictures(40, 2, 2)
    train = pair(tmp_path, images, np.arange(40) % 4)
    (tmp_path / "test").mkdir()
    test = pair(tmp_path / "test", images[:5], [0] * 5)
    _, counts = ingested(reader={"kind": "idx"}, train=[train], test=[test])
    assert counts["rows_same_as_in_train"] == {"test": 5}
    dataset, counts = ingested(reader={"kind": "idx"}, train=[train], holdout={"test": 0.25})
    assert counts["rows"] == {"train": 30, "test": 10}
    ids = np.array(dataset.row_ids("test").to_pylist(), int)
    np.testing.assert_array_equal(dataset.images("test")[..., 0], images[ids])


def test_images_are_rows_of_numbers_from_0_to_1_too(tmp_path: Path, ingested: Run) -> None:
    images = pictures(4, 2, 3)
    images[1] = 0
    images[2, 0, 0] = 255
    dataset, _ = ingested(
        reader={"kind": "idx"}, train=[pair(tmp_path, images, [0, 1] * 2)], empty_rows="keep", holdout={"test": 0}
    )
    expected = images.reshape(4, 6).astype(np.float64) / 255
    np.testing.assert_allclose(dataset.dense("train"), expected, rtol=1e-6)
    sparse = dataset.sparse("train")
    np.testing.assert_array_equal(sparse.toarray(), dataset.dense("train"))
    assert sparse.nnz == np.count_nonzero(images)
    with pytest.raises(ConfigError, match="holds image rows, not text"):
        next(dataset.text_blocks("train"))


def test_names_of_classes_come_from_a_label_table(tmp_path: Path, ingested: Run) -> None:
    names = tmp_path / "names.csv"
    names.write_text('name\nboot\n""\ncoat\n')
    part = pair(tmp_path, pictures(2, 2, 2), [2, 0])
    dataset, _ = ingested(reader={"kind": "idx"}, train=[part], labels={"path": names, "id": None})
    assert dataset.label_texts() == ["boot", "1", "coat"]


def test_bad_idx_files_are_named(tmp_path: Path, ingested: Run) -> None:
    images, classes = pictures(5, 2, 3), [0, 1, 2, 0, 1]

    def refused(message: str, part: dict[str, Path], **options: Any) -> None:
        with pytest.raises(InputError, match=message):
            ingested(reader={"kind": "idx"} | options, train=[part])

    part = pair(tmp_path, images, classes)
    refused(r"classes: not images: found uint8 in 1 dimensions \(5,\), expected bytes in 3 .*features names the images",
            {"features": part["labels"], "labels": part["features"]})  # fmt: skip
    refused(r"images: not classes: found uint8 in 3", {"features": part["features"], "labels": part["features"]})
    refused(r"classes: not classes: found float32", pair(tmp_path, images, classes, "float32"))
    refused(r"images: not images: found float32", pair(tmp_path, images.astype(np.float32), classes))
    refused(r"number of rows: found 4, expected 5", pair(tmp_path, images, classes[:4]))
    refused(r"images: empty file", pair(tmp_path, images[:0], classes[:0]))
    refused(r"images: empty file", pair(tmp_path, images[:, :0], classes))
    refused(r"classes:3: class out of range: found 2, expected a class number from 0 to 1",
            pair(tmp_path, images, classes), n_labels=2)  # fmt: skip
    refused(r"classes:2: class out of range: found -1", pair(tmp_path, images, [0, -1, 0, 0, 0], "int16"))
    part = pair(tmp_path, images, classes)
    whole = {name: path.read_bytes() for name, path in part.items()}
    for name, path in part.items():
        path.write_bytes(whole[name][:-1])
        refused(f"{path.name}: truncated file: found the end of the file 1 bytes too early", part)
        path.write_bytes(whole[name] + b"x")
        refused(f"{path.name}: wrong sizes in the header: found bytes after the last row", part)
        path.write_bytes(whole[name][:6])
        refused(f"{path.name}: truncated file: found 6 bytes", part)
        path.write_bytes(b"")
        refused(f"{path.name}: not an idx file: found the first bytes missing", part)
        path.write_bytes(gzip.compress(whole[name]))
        refused(f"{path.name}: not an idx file: found the first bytes 1f 8b .*needs .gz", part)
        path.unlink()
        refused(f"{path.name}: missing file", part)
        path.write_bytes(whole[name])
    part = pair(tmp_path, images, classes, end=".gz")
    part["features"].write_bytes(part["features"].read_bytes()[:-12])
    refused(r"images\.gz: truncated", part)


def test_files_with_images_of_two_sizes_are_refused(tmp_path: Path, ingested: Run) -> None:
    parts = []
    for number, shape in enumerate([(2, 3), (2, 4)]):
        (tmp_path / str(number)).mkdir()
        parts.append(pair(tmp_path / str(number), pictures(2, *shape), [0, 1]))
    with pytest.raises(InputError, match="number of pixel columns: found 4, expected 3"):
        ingested(reader={"kind": "idx"}, train=parts)


@pytest.mark.parametrize(("name", "first"), [("mnist", [7, 2, 1, 0, 4]), ("fashion-mnist", [9, 2, 1, 1, 6])])
def test_real_images(name: str, first: list[int], real_data: Callable[[str], Path], ingested: Run) -> None:
    folder = real_data(name)
    part = {
        "features": folder / "t10k-images-idx3-ubyte.gz",
        "labels": folder / "t10k-labels-idx1-ubyte.gz",
    }
    dataset, counts = ingested(reader={"kind": "idx"}, train=[part])
    assert counts["rows"] == {"train": 10_000}
    assert (dataset.image_shape, dataset.n_labels) == ((28, 28, 1), 10)
    assert dataset.Y("train").indices[:5].tolist() == first
    raw = np.frombuffer(gzip.decompress(part["features"].read_bytes()), np.uint8)[16:]
    np.testing.assert_array_equal(dataset.images("train").ravel(), raw)


COMPOSED = {"kind": "idx", "n_labels": 4, "side_by_side": 3}


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_composed_rows_hold_images_side_by_side_and_their_classes_as_a_number(
    block_bytes: int, tmp_path: Path, ingested: Run
) -> None:
    images, classes = pictures(9, 4, 5), np.arange(9) % 4
    part = pair(tmp_path, images, classes)
    dataset, _ = ingested(reader=COMPOSED | {"composed_rows": 30}, train=[part], block_bytes=block_bytes)
    assert (dataset.image_shape, dataset.n_labels) == ((4, 15, 1), 64)
    rows, labels = dataset.images("train")[..., 0], dataset.Y("train").indices
    assert rows.shape == (30, 4, 15)
    for row, label in zip(rows, labels.tolist(), strict=True):
        digits = []
        for place in range(3):
            same = (images == row[:, 5 * place : 5 * place + 5]).all(axis=(1, 2))
            assert same.sum() == 1, "each place holds a whole image"
            digits.append(int(classes[same.argmax()]))
        assert label == 16 * digits[0] + 4 * digits[1] + digits[2]
    assert len({row.tobytes() for row in rows}) > 20, "images are drawn anew for each row"


def test_composed_rows_may_have_a_label_for_each_place(tmp_path: Path, ingested: Run) -> None:
    part = pair(tmp_path, pictures(9, 2, 2), np.arange(9) % 4)
    by_number, _ = ingested(reader=COMPOSED, train=[part])
    by_place, _ = ingested(reader=COMPOSED | {"composed_labels": "places"}, train=[part])
    assert by_place.n_labels == 12
    numbers, places = by_number.Y("train").indices, by_place.Y("train").indices.reshape(9, 3)
    assert np.array_equal(places - [0, 4, 8], np.stack(np.unravel_index(numbers, (4, 4, 4)), axis=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"side_by_side": 2}, "side_by_side needs n_labels"),
        ({"composed_rows": 5}, "composed_rows needs side_by_side"),
        ({"side_by_side": 16, "n_labels": 10}, "make 1e\\+16 labels"),
        ({"side_by_side": 2, "n_labels": 3}, "class out of range"),
    ],
)
def test_compositions_that_cannot_be_are_refused(
    options: dict[str, int], message: str, tmp_path: Path, ingested: Run
) -> None:
    part = pair(tmp_path, pictures(9, 2, 2), np.arange(9) % 4)
    with pytest.raises((ConfigError, InputError, ValueError), match=message):
        ingested(reader={"kind": "idx", **options}, train=[part])
