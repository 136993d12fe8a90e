"""Images and their classes as idx files, the format of MNIST: a header with the sizes, then plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from xcore.data.readers.base import INT32_MAX, MOST_LABELS, Block, FilePair, Form, Part, Shape, agreed
from xcore.data.readers.pairs import PairReader, merged, pair_of
from xcore.data.readers.sparse_rows import list_array
from xcore.data.readers.streams import opened_stream, stream_bytes
from xcore.errors import ConfigError, InputError, Place
from xcore.memory import need_memory
from xcore.numeric.matrices import Int64, row_blocks

BYTE = 0x08
TYPES = {BYTE: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_SIZES_SHOWN = 5
CLASS_TYPES = (BYTE, 0x0B, 0x0C)
SWAPPED = "Check that features names the images and labels the classes."


class IdxReader(PairReader):
    """idx files, the format of MNIST: images (rows, height, width, optional channels), one class number per image.

    With `side_by_side` each row is composed of several images that are drawn at random, always the same ones. Ten
    digits make 10^3 classes in rows of three images, and 10^5 in rows of five.
    """

    kind: Literal["idx"] = "idx"
    n_labels: int | None = Field(
        None,
        ge=1,
        le=INT32_MAX,
        description="Number of classes of an image. Empty: taken from the files. Needed with side_by_side.",
    )
    side_by_side: int = Field(
        1, ge=1, le=16, description="Number of images in a row. Above 1, rows are composed of images drawn at random."
    )
    composed_rows: int | None = Field(
        None,
        ge=1,
        le=INT32_MAX,
        description="Number of rows to compose of each pair of files. Empty: as many as there are images.",
    )
    composed_labels: Literal["number", "places"] = Field(
        "number",
        description="Labels of a composed row. number: one label, the classes read as the digits of a number. "
        "places: one label per image, for its place and class.",
    )

    @model_validator(mode="after")
    def _composition_is_complete(self) -> Self:
        if self.side_by_side > 1 and self.n_labels is None:
            raise ValueError("side_by_side needs n_labels, the number of classes of an image")
        if self.side_by_side == 1 and self.composed_rows is not None:
            raise ValueError("composed_rows needs side_by_side above 1")
        return self

    @property
    def form(self) -> Form:
        return "image"

    def shape(self, parts: Sequence[Part]) -> Shape:
        sizes: list[tuple[str, tuple[int, int, int]]] = []
        for pair in map(pair_of, parts):
            with opened(pair.features) as images, opened(pair.labels) as classes:
                sizes.append((images.file, images.image_shape()))
                agreed("rows", [(images.file, images.sizes[0]), (classes.file, classes.rows_of_classes())])
        height, width, channels = (
            agreed(name, [(file, size[axis]) for file, size in sizes])
            for axis, name in enumerate(("pixel rows", "pixel columns", "channels"))
        )
        width *= self.side_by_side
        return Shape(height * width * channels, self._n_row_labels, (height, width, channels))

    @property
    def _n_row_labels(self) -> int | None:
        if self.n_labels is None or self.side_by_side == 1:
            return self.n_labels
        if self.composed_labels == "places":
            return self.n_labels * self.side_by_side
        n_labels: int = self.n_labels**self.side_by_side
        if n_labels > INT32_MAX:
            raise ConfigError(
                f"{self.side_by_side} images of {self.n_labels} classes side by side make {n_labels:.2g} labels, "
                f"expected at most {INT32_MAX:,}: take fewer images, or composed_labels: places"
            )
        return n_labels

    def pair_blocks(self, pair: FilePair, block_bytes: int) -> Iterator[Block]:
        if self.side_by_side > 1:
            yield from self._composed_blocks(pair, block_bytes)
            return
        with opened(pair.features) as images, opened(pair.labels) as classes:
            size = math.prod(images.image_shape())
            n_rows, at_once = classes.rows_of_classes(), max(1, block_bytes // size)
            for start in range(0, n_rows, at_once):
                lines = np.arange(start, min(start + at_once, n_rows), dtype=np.int64) + 1
                pixels = pa.py_buffer(images.read(len(lines) * size))
                image = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(lines), [None, pixels])
                block = Block(images.file, pa.record_batch({"line": lines, "image": image}))
                yield self._with_classes(block, classes, lines)
            images.finish()
            classes.finish()

    def _composed_blocks(self, pair: FilePair, block_bytes: int) -> Iterator[Block]:
        """Rows of several images. All images of the pair are in memory, for any of them may come next."""
        with opened(pair.features) as images, opened(pair.labels) as classes:
            shape = images.image_shape()
            n_images = classes.rows_of_classes()
            n_bytes = n_images * math.prod(shape)
            need_memory(n_bytes, f"the images of {images.file}", "Compose rows of fewer images, or of smaller ones.")
            pixels = np.frombuffer(images.read(n_bytes), np.uint8).reshape(n_images, *shape)
            numbers = classes.numbers(n_images)
            images.finish()
            classes.finish()
        self._check_classes(numbers, classes.file)
        n_rows = self.composed_rows or n_images
        drawn = np.random.default_rng(n_images).integers(0, n_images, (n_rows, self.side_by_side))
        size = pixels[0].size * self.side_by_side
        for part in row_blocks(n_rows, max(1, block_bytes // size)):
            own = drawn[part]
            beside = pixels[own].transpose(0, 2, 1, 3, 4).reshape(len(own), -1)
            buffer = pa.py_buffer(np.ascontiguousarray(beside))
            image = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(own), [None, buffer])
            lines = np.arange(part.start, part.stop, dtype=np.int64) + 1
            block = Block(images.file, pa.record_batch({"line": lines, "image": image}))
            yield merged(block, self._composed_lists(numbers[own]), {}, classes.file)

    def _check_classes(self, numbers: Int64, file: str) -> None:
        """A composed row has no line of its own in the file, so a bad class stops the reading."""
        limit = self.n_labels or MOST_LABELS
        bad = np.flatnonzero((numbers < 0) | (numbers >= limit))
        if len(bad):
            place, found = Place(file, int(bad[0]) + 1), str(numbers[bad[0]])
            raise InputError(place, "class out of range", found, f"a class number from 0 to {limit - 1}")

    def _composed_lists(self, classes: Int64) -> pa.Array:
        """Labels of rows with these classes (n, images)."""
        n, n_images = classes.shape
        base = self.n_labels or 1
        if self.composed_labels == "places":
            labels = classes + base * np.arange(n_images)
            return list_array(np.arange(n + 1) * n_images, labels.reshape(-1).astype(np.int32))
        numbers = classes @ base ** np.arange(n_images)[::-1]
        return list_array(np.arange(n + 1), numbers.astype(np.int32))

    def _with_classes(self, block: Block, classes: IdxStream, lines: Int64) -> Block:
        numbers = classes.numbers(len(lines))
        limit = self.n_labels or MOST_LABELS
        bad = {
            row: InputError(
                Place(classes.file, int(lines[row])),
                "class out of range",
                str(numbers[row]),
                f"a class number from 0 to {limit - 1}",
            )
            for row in np.flatnonzero((numbers < 0) | (numbers >= limit)).tolist()
        }
        known = np.where((numbers < 0) | (numbers >= limit), 0, numbers).astype(np.int32)
        return merged(block, list_array(np.arange(len(lines) + 1), known), bad, classes.file)


@dataclass
class IdxStream:
    """An open idx file after its header; rows are read from first to last.

    Attributes
    ----------
    kind : int
        Code of the numbers' type, see TYPES.
    sizes : tuple of int
        Rows, and the sizes of what each row holds.
    """

    file: str
    stream: Any
    kind: int
    sizes: tuple[int, ...]

    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels; an error where the file does not hold images of bytes."""
        if self.kind != BYTE or len(self.sizes) not in (3, 4):
            raise InputError(
                Place(self.file),
                "not images",
                self.says(),
                "bytes in 3 dimensions (rows, height, width), or 4 with channels",
                SWAPPED,
            )
        if 0 in self.sizes:
            raise InputError(Place(self.file), "empty file", self.says(), "at least one image of at least one pixel")
        if math.prod(self.sizes[1:]) > INT32_MAX:
            raise InputError(Place(self.file), "images too large", self.says(), f"at most {INT32_MAX:,} bytes each")
        height, width, *channels = self.sizes[1:]
        return height, width, channels[0] if channels else 1

    def rows_of_classes(self) -> int:
        """How many classes there are; an error where the file does not hold one class number per row."""
        if self.kind not in CLASS_TYPES or len(self.sizes) != 1:
            expected = "whole numbers in 1 dimension, one class per image"
            raise InputError(Place(self.file), "not classes", self.says(), expected, SWAPPED)
        return self.sizes[0]

    def says(self) -> str:
        """What the header says, for messages."""
        sizes = self.sizes if len(self.sizes) <= MOST_SIZES_SHOWN else f"{self.sizes[:MOST_SIZES_SHOWN]} and so on"
        return f"{np.dtype(TYPES[self.kind]).name} in {len(self.sizes)} dimensions {sizes}"

    def read(self, size: int) -> bytes:
        """The next bytes, all of them."""
        content = stream_bytes(Path(self.file), self.stream, size)
        if len(content) < size:
            found = f"the end of the file {size - len(content)} bytes too early"
            raise InputError(
                Place(self.file), "truncated file", found, f"{self.says()}, as its header says", "Copy it again."
            )
        return content

    def numbers(self, count: int) -> npt.NDArray[np.int64]:
        """The next numbers of a file of classes."""
        kind = np.dtype(TYPES[self.kind])
        return np.frombuffer(self.read(count * kind.itemsize), kind).astype(np.int64)

    def finish(self) -> None:
        """Read to the end, where a compressed file checks its sum."""
        if stream_bytes(Path(self.file), self.stream, 1):
            expected = f"no more than {self.says()}, as its header says"
            raise InputError(Place(self.file), "wrong sizes in the header", "bytes after the last row", expected)


@contextmanager
def opened(path: Path) -> Iterator[IdxStream]:
    """Open an idx file, plain or compressed, and read its header."""
    with opened_stream(path) as stream:
        yield IdxStream(str(path), stream, *_header(path, stream))


def _header(path: Path, stream: Any) -> tuple[int, tuple[int, ...]]:
    """The type of the numbers, and the sizes."""
    magic = stream_bytes(path, stream, 4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise InputError(
            Place(str(path)),
            "not an idx file",
            f"the first bytes {magic.hex(' ') or 'missing'}",
            "two zero bytes, a type (08 for bytes) and the number of dimensions",
            "A compressed file needs .gz or .zst in its name." if magic[:2] == b"\x1f\x8b" else "",
        )
    sizes = stream_bytes(path, stream, 4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise InputError(Place(str(path)), "truncated file", f"{4 + len(sizes)} bytes", "a header with all sizes")
    return magic[2], tuple(np.frombuffer(sizes, ">u4").tolist())
