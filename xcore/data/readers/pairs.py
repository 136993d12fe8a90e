"""What formats share that keep features and labels in two files with the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from xcore.data.readers.base import EVERYTHING, Block, FilePair, Form, Part, Reader, Shape, Wanted, agreed
from xcore.errors import ConfigError, InputError


class PairReader(Reader):
    """Pairs of a features file and a labels file; subclasses set `sizes` and `pair_blocks`."""

    pairs: ClassVar[bool] = True
    integer_labels: ClassVar[bool] = True

    @property
    def form(self) -> Form:
        return "sparse"

    def sizes(self, pair: FilePair) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of the features, and of the labels, as the files' headers say."""
        raise TypeError(f"{type(self).__name__} has no sizes")

    def pair_blocks(self, pair: FilePair, block_bytes: int) -> Iterator[Block]:
        """The rows of one pair, in blocks."""
        raise TypeError(f"{type(self).__name__} has no pair_blocks")

    def shape(self, parts: Sequence[Part]) -> Shape:
        features, labels = [], []
        for pair in map(pair_of, parts):
            (rows, n_features), (label_rows, n_labels) = self.sizes(pair)
            agreed("rows", [(str(pair.features), rows), (str(pair.labels), label_rows)])
            features.append((str(pair.features), n_features))
            labels.append((str(pair.labels), n_labels))
        return Shape(n_features=agreed("features", features), n_labels=agreed("labels", labels))

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        return self.pair_blocks(pair_of(part), block_bytes)


def pair_of(part: Part) -> FilePair:
    """The part, which must be a pair."""
    if not isinstance(part, FilePair):
        raise ConfigError(f"expected a pair of files, got {part!r}")
    return part


def merged(features: Block, labels: pa.Array, bad: dict[int, InputError], labels_file: str) -> Block:
    """The block with the labels of its rows. A row is bad if its features or its labels are bad."""
    return Block(features.file, features.rows.append_column("labels", labels), bad | features.bad, labels_file)
