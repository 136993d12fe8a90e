"""The XMC repository's split form: features (``N D``), labels (``N L``) and, if any, label features (``L D``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa

from xcore.data.readers.base import Block, FilePair, Form, Part, Reader, Shape, agreed
from xcore.data.readers.sparse_errors import Grammar
from xcore.data.readers.sparse_rows import features_block, in_step, list_array, with_labels, without_zeros
from xcore.data.readers.xmc import counted_lines, read_header
from xcore.errors import ConfigError


def pairs_of(parts: Sequence[Part]) -> list[FilePair]:
    """The parts, which `Reader.parts` has already checked to be pairs."""
    return [part for part in parts if isinstance(part, FilePair)]


class XmcSplitReader(Reader):
    """XMC repository, split form: a features file and a labels file a part, each ``column:value`` a row, from 0."""

    pairs: ClassVar[bool] = True
    integer_labels: ClassVar[bool] = True
    kind: Literal["xmc-split"] = "xmc-split"

    @property
    def form(self) -> Form:
        return "sparse"

    def shape(self, parts: Sequence[Part]) -> Shape:
        features, labels = [], []
        for pair in pairs_of(parts):
            rows, n_features = read_header(pair.features, "rows features")
            rows_of_labels, n_labels = read_header(pair.labels, "rows labels")
            agreed("rows", [(str(pair.features), rows), (str(pair.labels), rows_of_labels)])
            features.append((str(pair.features), n_features))
            labels.append((str(pair.labels), n_labels))
        return Shape(n_features=agreed("features", features), n_labels=agreed("labels", labels))

    def blocks(
        self, part: Part, shape: Shape, block_bytes: int, with_labels: bool = True, with_groups: bool = True
    ) -> Iterator[Block]:
        if not isinstance(part, FilePair):
            raise ConfigError(f"expected a pair of files, got {part!r}")
        features = _matrix_blocks(part.features, "feature", block_bytes)
        labels = _label_blocks(part.labels, block_bytes)
        for block, own in in_step(features, labels):
            yield _merged(block, own)

    def label_features(self, path: Path, shape: Shape, block_bytes: int) -> tuple[int, Iterator[Block]]:
        n_labels, n_columns = read_header(path, "labels features")
        agreed("labels", [("the labels file", shape.n_labels or n_labels), (str(path), n_labels)])
        return n_columns, _matrix_blocks(path, "feature", block_bytes)


def _matrix_blocks(path: Path, noun: str, block_bytes: int) -> Iterator[Block]:
    """The rows of one matrix file as features."""
    n_rows, n_columns = read_header(path, f"rows {noun}s")
    grammar = Grammar(labels=False, last_feature=n_columns - 1, noun=noun)
    for lines in counted_lines(path, n_rows, grammar, block_bytes):
        block = features_block(str(path), lines.lines, lines.offsets, lines.indices, lines.values)
        block.bad.update(lines.bad)
        yield block


def _label_blocks(path: Path, block_bytes: int) -> Iterator[Block]:
    """The rows of a label matrix: the columns whose value is not zero."""
    n_rows, n_labels = read_header(path, "rows labels")
    grammar = Grammar(labels=False, last_feature=n_labels - 1, noun="label")
    for lines in counted_lines(path, n_rows, grammar, block_bytes):
        labels = list_array(*without_zeros(lines.offsets, lines.indices, lines.values))
        yield Block(str(path), pa.record_batch({"line": lines.lines, "labels": labels}), lines.bad)


def _merged(features: Block, labels: Block) -> Block:
    """Features and labels of the same rows; a row is bad if either is."""
    block = with_labels(features, labels.rows.column("labels"))
    block.bad.update({row: error for row, error in labels.bad.items() if row not in features.bad})
    return block
