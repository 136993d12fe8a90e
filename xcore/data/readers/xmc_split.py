"""The XMC repository's split form: features (``N D``), labels (``N L``) and, if any, label features (``L D``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from xcore.data.readers.base import Block, FilePair, Shape, agreed
from xcore.data.readers.pairs import PairReader, merged
from xcore.data.readers.sparse_errors import Grammar
from xcore.data.readers.sparse_rows import features_block, in_step, list_array, without_zeros
from xcore.data.readers.xmc import counted_lines, read_header


class XmcSplitReader(PairReader):
    """XMC repository, split form: a features file and a labels file, each with ``column:value`` entries, from 0."""

    kind: Literal["xmc-split"] = "xmc-split"

    def sizes(self, pair: FilePair) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, n_features = read_header(pair.features, "rows features")
        label_rows, n_labels = read_header(pair.labels, "rows labels")
        return (rows, n_features), (label_rows, n_labels)

    def pair_blocks(self, pair: FilePair, block_bytes: int) -> Iterator[Block]:
        features = _matrix_blocks(pair.features, block_bytes)
        for block, own in in_step(features, _label_blocks(pair.labels, block_bytes)):
            yield merged(block, own.rows.column("labels"), own.bad, own.file)

    def label_features(self, path: Path, shape: Shape, block_bytes: int) -> tuple[int, Iterator[Block]]:
        n_labels, n_columns = read_header(path, "labels features")
        agreed("labels", [("the labels file", shape.n_labels or n_labels), (str(path), n_labels)])
        return n_columns, _matrix_blocks(path, block_bytes)


def _matrix_blocks(path: Path, block_bytes: int) -> Iterator[Block]:
    """The rows of one matrix file as features."""
    n_rows, n_columns = read_header(path, "rows features")
    for lines in counted_lines(path, n_rows, Grammar(labels=False, last_feature=n_columns - 1), block_bytes):
        block = features_block(str(path), lines.lines, lines.offsets, lines.indices, lines.values)
        block.bad.update(lines.bad)
        yield block


def _label_blocks(path: Path, block_bytes: int) -> Iterator[Block]:
    """The rows of a label matrix: the columns of the non-zero values."""
    n_rows, n_labels = read_header(path, "rows labels")
    grammar = Grammar(labels=False, last_feature=n_labels - 1, noun="label", repeats=True)
    for lines in counted_lines(path, n_rows, grammar, block_bytes):
        labels = list_array(*without_zeros(lines.offsets, lines.indices, lines.values))
        yield Block(str(path), pa.record_batch({"line": lines.lines, "labels": labels}), lines.bad)
