"""The interface of all readers: blocks of rows in one form, with a list of the bad rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa
from pydantic import Field

from xcore.components import Component
from xcore.errors import ConfigError, InputError, Place

Form: TypeAlias = Literal["sparse", "text", "vector", "image"]
Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
INT32_MAX = 2**31 - 1
MOST_LABELS = 1 << 26  # without a header nothing else stops a stray number from making a label table of gigabytes

LABEL_IDS = pa.list_(pa.int32())
LABEL_NAMES = pa.list_(pa.string())


class FilePair(Component):
    """One part of a dataset that keeps its features and its labels in two files with the same rows."""

    features: Path = Field(description="File with the features: a matrix, or images.")
    labels: Path = Field(description="File with the labels of the same rows, in the same order.")


Part: TypeAlias = Path | FilePair


@dataclass(frozen=True)
class Shape:
    """What the files say about the whole dataset before it is read; None where they do not say.

    `image` is the height, width and number of channels of each image.
    """

    n_features: int | None = None
    n_labels: int | None = None
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Wanted:
    """Which columns besides the features are read.

    Attributes
    ----------
    labels : bool
        False: rows need no labels of their own, so a format with named columns may lack the column.
    groups : 'needed', 'optional' or 'no'
        Whether a format with named columns must have the column of groups, may have it, or is not asked for it.
    """

    labels: bool = True
    groups: Literal["needed", "optional", "no"] = "needed"


EVERYTHING = Wanted()


@dataclass(frozen=True)
class Block:
    """Some consecutive rows of one part.

    Attributes
    ----------
    file : str
        Where the rows are from, as messages name it.
    rows : pa.RecordBatch
        ``line: int64`` (from 1), ``labels: list<int32>`` (label numbers) or ``list<string>`` (label ids), and the
        features: ``indices: list<int32>`` (ascending, unique) with ``values: list<float32>``, ``text: string``,
        ``vector: fixed_size_list<float32>`` or ``image: fixed_size_binary`` (bytes by row, column, channel); where
        the format has them ``id: string`` and ``group: string``. A label may stand twice in a list.
    bad : dict
        Position in `rows` -> what is wrong with that row; the row is there, so that positions count all rows read.
    labels_file : str or None
        Where the labels are from, if they have a file of their own with the same rows on the same lines.
    """

    file: str
    rows: pa.RecordBatch
    bad: dict[int, InputError] = field(default_factory=dict)
    labels_file: str | None = None


class Reader(Component):
    """Options of one file format; subclasses set a ``kind`` literal, `form` and `blocks`."""

    pairs: ClassVar[bool] = False  # a part is a FilePair
    integer_labels: ClassVar[bool] = False  # labels are numbers and keep their numeric order
    row_labels_are_own: ClassVar[bool] = False  # labels beside a group are the row's own, not the group's

    @property
    def form(self) -> Form:
        """How the features come out."""
        raise TypeError(f"{type(self).__name__} has no form")

    @property
    def groups_rows(self) -> bool:
        """Whether train rows come with the group they belong to."""
        return False

    def parts(self, named: dict[Split, list[Part]]) -> dict[Split, list[Part]]:
        """What to read for each split, given what the source names."""
        for split, parts in named.items():
            for part in parts:
                if isinstance(part, FilePair) != self.pairs:
                    wanted = "a pair {features: PATH, labels: PATH}" if self.pairs else "one path"
                    raise ConfigError(f"{split}: this reader needs {wanted} for each part, got {part!r}")
        if not named["train"]:
            raise ConfigError("train: no files, expected at least one")
        return named

    def shape(self, parts: Sequence[Part]) -> Shape:
        """What the headers of all parts say, or an error where they contradict each other."""
        return Shape()

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        """All rows of one part in order, in blocks of about `block_bytes` of input."""
        raise TypeError(f"{type(self).__name__} has no blocks")

    def column_name(self, role: str) -> str:
        """What the files call the column of a role (text, vector, labels, id, group), for messages."""
        return role

    def index_shift(self, lowest: int) -> int:
        """What to take from each feature id, given the lowest id that occurs."""
        return 0

    def label_features(self, path: Path, shape: Shape, block_bytes: int) -> tuple[int, Iterator[Block]]:
        """The columns and rows of a file that gives each label features of its own, in the order of the labels."""
        raise ConfigError(f"label_features: a {type(self).__name__} has no such file; leave it out")


def agreed(what: str, said: Sequence[tuple[str, int]]) -> int:
    """The number on which all files agree."""
    for file, number in said[1:]:
        if number != said[0][1]:
            raise InputError(
                Place(file, 1),
                f"files disagree about the number of {what}",
                str(number),
                f"{said[0][1]}, as {said[0][0]} says",
                "All files of one dataset share one feature space and one label space.",
            )
    return said[0][1]
