"""Safetensors files: those of the library, those that are ours, and those that lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from xcore.errors import ArtifactDamaged
from xcore.numeric.arrays import SAFETENSORS_TYPES, open_arrays, write_arrays


def of_every_type() -> dict[str, np.ndarray]:
    arrays = {f"a {name}": np.arange(3).astype(dtype) for name, dtype in SAFETENSORS_TYPES.items()}
    return arrays | {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "none": np.zeros((0, 4)),
        "ä": np.ones(1),
    }


def test_the_library_reads_what_we_write_and_would_write_the_same_bytes(tmp_path: Path) -> None:
    arrays, path = of_every_type(), tmp_path / "x.safetensors"
    write_arrays(path, arrays)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    assert path.read_bytes() == safetensors.numpy.save(contiguous)
    for read in (safetensors.numpy.load_file(path), open_arrays(path)):
        assert set(read) == set(arrays)
        assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
        assert all(read[name].dtype == arrays[name].dtype for name in arrays)


def test_bytes_do_not_depend_on_the_order_of_the_arrays(tmp_path: Path) -> None:
    arrays = of_every_type()
    write_arrays(tmp_path / "a", arrays)
    write_arrays(tmp_path / "b", dict(reversed(arrays.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_arrays_of_another_writer_are_aligned(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1], 0, 1), "b": entry("F32", [2], 1, 9), "__metadata__": {"by": "hand"}}
    write(tmp_path / "x", header, b"\x07" + np.array([1, 2], np.float32).tobytes())
    arrays = open_arrays(tmp_path / "x")
    assert arrays["a"].tolist() == [7]
    assert arrays["b"].tolist() == [1, 2]
    assert arrays["b"].flags.aligned


def entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, header: Any, content: bytes = bytes(16), length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + content)


WRONG_HEADERS = {
    "beyond the file": ({"a": entry("F32", [8], 0, 32)}, "ends at byte 32 of 16"),
    "not all of the file": ({"a": entry("F32", [3], 0, 12)}, "ends at byte 12 of 16, but what follows is at 16"),
    "overlapping": ({"a": entry("F32", [4], 0, 16), "b": entry("F32", [2], 8, 16)}, "ends at byte 16 of 16"),
    "the same twice": ({"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 0, 16)}, "ends at byte 16 of 16"),
    "a gap": ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [2], 8, 16)}, "what follows is at 8"),
    "backwards": ({"a": entry("F32", [4], 16, 0)}, "takes 16 bytes"),
    "negative": ({"a": entry("F32", [4], -16, 0)}, r"a\.data_offsets\.0"),
    "negative lengths": ({"a": entry("F32", [-2, -2], 0, 16)}, r"a\.shape\.0"),
    "another size": ({"a": entry("F32", [5], 0, 16)}, r"F32 of shape \[5\] takes 20 bytes"),
    "a huge shape": ({"a": entry("F32", [2**62, 4], 0, 16)}, "which no memory holds"),
    "a huge empty shape": ({"a": entry("F32", [0, 2**62, 2**62], 0, 0)}, "which no memory holds"),
    "a shape that overflows": ({"a": entry("F32", [2**32, 2**32, 4], 0, 16)}, "which no memory holds"),
    "many dimensions": ({"a": entry("F32", [1] * 40 + [4], 0, 16)}, r"a\.shape"),
    "an unknown type": ({"a": entry("C64", [2], 0, 16)}, r"a\.dtype"),
    "a type that is no text": ({"a": entry(4, [4], 0, 16)}, r"a\.dtype"),
    "lengths that are no integers": ({"a": entry("F32", [4.0], 0, 16)}, r"a\.shape\.0"),
    "lengths that are true": ({"a": entry("U8", [True] * 3, 0, 1)}, r"a\.shape\.0"),
    "three offsets": ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8, 16]}}, r"a\.data_offsets"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [4]}}, r"a\.data_offsets"),
    "no entry": ({"a": 3}, "wrong at a"),
    "a list": ([1, 2], "wrong at the whole"),
    "no JSON": (b"{nonsense", "no JSON"),
    "no text": (b"\xff\xfe\xff", "no JSON"),
    "deep": (b"[" * 100_000, "no JSON"),
    "endless numbers": (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
    "a name twice": (b'{"a": 1, "a": 1}', "twice"),
    "nothing": (b"", "should end at byte 8"),
}


@pytest.mark.parametrize("name", WRONG_HEADERS)
def test_a_header_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    header, message = WRONG_HEADERS[name]
    write(tmp_path / "x.safetensors", header)
    with pytest.raises(ArtifactDamaged, match=rf"x\.safetensors is not a whole safetensors file.*{message}"):
        open_arrays(tmp_path / "x.safetensors")


@pytest.mark.parametrize("length", [10**6, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(length: int, tmp_path: Path) -> None:
    write(tmp_path / "x", {}, length=length)
    with pytest.raises(ArtifactDamaged, match=f"should end at byte {8 + length:,} of 26"):
        open_arrays(tmp_path / "x")


@pytest.mark.parametrize("size", range(0, 40, 3))
def test_a_file_that_was_cut_is_refused(size: int, tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", {"a": np.ones(3)})
    os.truncate(tmp_path / "x", size)
    with pytest.raises(ArtifactDamaged):
        open_arrays(tmp_path / "x")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing"):
        with pytest.raises(ArtifactDamaged, match="is missing or no file"):
            open_arrays(path)
