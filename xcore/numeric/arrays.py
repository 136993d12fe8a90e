"""Arrays at rest: the project's only reader and writer of safetensors files.

A file is eight bytes with the length of its header, the header in JSON, and the bytes of the arrays. The header names
each array with its type, its shape and the range of its bytes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from xcore.errors import ArtifactDamaged

# In the order in which the safetensors library writes them: the widest come first, so that all arrays are aligned.
SAFETENSORS_TYPES = {
    **{"U64": "<u8", "I64": "<i8", "F64": "<f8", "F32": "<f4", "U32": "<u4", "I32": "<i4"},
    **{"F16": "<f2", "U16": "<u2", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"},
}
MOST_HEADER_BYTES = 10**8  # the format's own limit
NUMBER_BYTES = 8

Size = Annotated[int, Field(ge=0, lt=2**63)]


class _Entry(BaseModel):
    """What the header says about an array."""

    model_config = ConfigDict(strict=True, extra="forbid")

    dtype: Literal["U64", "I64", "F64", "F32", "U32", "I32", "F16", "U16", "I16", "I8", "U8", "BOOL"]
    shape: Annotated[list[Size], Field(max_length=32)]  # NumPy 1 has no more dimensions
    data_offsets: Annotated[list[Size], Field(min_length=2, max_length=2)]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(SAFETENSORS_TYPES[self.dtype]).itemsize


_HEADER = TypeAdapter(dict[str, _Entry])


def open_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a safetensors file, mapped into memory: no array is read before it is used.

    The pages are private copies on write, so the arrays are writable and the file never changes.

    Raises
    ------
    ArtifactDamaged
        If the arrays do not fill the rest of the file one after the other, or the header is no header. What the
        arrays hold is for the caller to check: see `xcore.numeric.checks`.
    """
    if not path.is_file():
        raise ArtifactDamaged(f"{path} is missing or no file, expected a safetensors file; make the artifact again")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = NUMBER_BYTES + int.from_bytes(file.read(NUMBER_BYTES), "little")
            if not NUMBER_BYTES < start <= min(size, MOST_HEADER_BYTES):
                raise _damaged(path, f"its header should end at byte {start:,} of {size:,}")
            entries = _header(path, file.read(start - NUMBER_BYTES))
            _check_ranges(path, entries, size - start)
            content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    return {name: _mapped(content, start, entry) for name, entry in entries.items()}


def _header(path: Path, text: bytes) -> dict[str, _Entry]:
    try:
        header = json.loads(text, object_pairs_hook=_without_repeats)
        if isinstance(header, dict):
            header.pop("__metadata__", None)
        return _HEADER.validate_python(header)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise _damaged(path, f"its header is wrong at {place}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is no JSON ({error})") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same name occurs twice")
    return found


def _check_ranges(path: Path, entries: dict[str, _Entry], n_bytes: int) -> None:
    """The arrays lie one after the other, without gaps, from the first byte to the last one."""
    for name, entry in entries.items():
        begin, end = entry.data_offsets
        if math.prod(max(length, 1) for length in entry.shape) >= 2**60:  # an empty array may still be too wide
            raise _damaged(path, f"array '{name}' has the shape {entry.shape}, which no memory holds")
        if end - begin != entry.n_bytes:
            raise _damaged(
                path,
                f"array '{name}' has bytes {begin:,} to {end:,}, but {entry.dtype} of shape {entry.shape} takes "
                f"{entry.n_bytes:,} bytes",
            )
    ranges = sorted(entry.data_offsets for entry in entries.values())
    for (_, end), (begin, _) in pairwise([(0, 0), *ranges, (n_bytes, n_bytes)]):
        if begin != end:
            raise _damaged(path, f"an array ends at byte {end:,} of {n_bytes:,}, but what follows is at {begin:,}")


def _mapped(content: mmap.mmap, start: int, entry: _Entry) -> npt.NDArray[Any]:
    dtype, first = np.dtype(SAFETENSORS_TYPES[entry.dtype]), start + entry.data_offsets[0]
    if not entry.n_bytes:
        return np.empty(entry.shape, dtype)
    flat = np.frombuffer(content, dtype, math.prod(entry.shape), first)
    # Other writers need not align; compiled kernels are made for aligned arrays.
    return (flat if flat.flags.aligned else flat.copy()).reshape(entry.shape)


def _damaged(path: Path, problem: str) -> ArtifactDamaged:
    return ArtifactDamaged(f"{path} is not a whole safetensors file: {problem}; make the artifact again")


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write arrays as a safetensors file, one after the other and straight from memory: nothing is copied.

    The widest types come first, then names in order: the bytes do not depend on the order of `arrays`, and are those
    that the safetensors library writes.
    """
    names = {np.dtype(dtype): name for name, dtype in SAFETENSORS_TYPES.items()}
    ranks = {name: rank for rank, name in enumerate(SAFETENSORS_TYPES)}
    ordered = dict(sorted(arrays.items(), key=lambda item: (ranks[names[item[1].dtype]], item[0])))
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % NUMBER_BYTES)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(NUMBER_BYTES, "little") + text)
        for array in ordered.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
