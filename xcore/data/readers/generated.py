"""Synthetic data with known true labels: each label generates words, and only groups of rows show their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from xcore.data.readers.base import EVERYTHING, INT32_MAX, Block, Form, Part, Reader, Shape, Split, Wanted
from xcore.data.readers.sparse_rows import features_block, list_array, with_labels
from xcore.errors import ConfigError
from xcore.numeric.matrices import Float32, Float64, Int32, Int64

ROWS_A_BLOCK = 4096  # part of the definition of the data: each block has its own generator
WORDS_OF_A_LABEL = 24
STREAMS = {"train": 1, "test": 2}


class GeneratedReader(Reader):
    """Synthetic bags of words with Zipf label frequencies. No files are read. The same seed gives the same data.

    Each label has 24 words of its own (which other labels may share). A row draws its labels by frequency, then each
    of its words from one of its labels, or with probability `noise` from the Zipf background. Values are
    ``(1 + ln count) * -ln background probability``. Train rows fall into random groups of `group_size`, and only
    the merged label lists of the groups remain with the train rows; what was planted is kept as the truth.
    """

    row_labels_are_own: ClassVar[bool] = True
    integer_labels: ClassVar[bool] = True
    kind: Literal["generated"] = "generated"
    n_train: int = Field(8000, ge=1, le=INT32_MAX, title="Train rows", description="Number of train rows.")
    n_test: int = Field(
        2000, ge=1, le=INT32_MAX, title="Test rows", description="Number of test rows. Each has labels of its own."
    )
    n_labels: int = Field(
        200, ge=2, le=10_000_000, description="Number of labels. With more labels, each has fewer train rows."
    )
    n_features: int = Field(3000, ge=32, le=10_000_000, description="Number of words in the vocabulary.")
    labels_per_row: float = Field(2.0, ge=1, le=100, description="Mean number of labels drawn per row.")
    words_per_row: float = Field(
        36.0, ge=1, le=10_000, description="Mean number of words per row. More words make the labels easier to predict."
    )
    noise: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of the words that say nothing about the labels. A higher share makes the labels "
        "harder to predict.",
    )
    group_size: int = Field(
        4,
        ge=1,
        le=10_000,
        description="Number of train rows per group. 1 makes an ordinary dataset, where each row has its own labels.",
    )
    seed: int = Field(0, ge=0, description="Seed of the data. The seed of the run does not change the data.")

    @property
    def form(self) -> Form:
        return "sparse"

    @property
    def groups_rows(self) -> bool:
        return self.group_size > 1

    def parts(self, named: dict[Split, list[Part]]) -> dict[Split, list[Part]]:
        if any(named.values()):
            raise ConfigError("a generated source reads no files: leave train, dev and test empty")
        return {"train": [Path("train")], "dev": [], "test": [Path("test")]}

    def shape(self, parts: Sequence[Part]) -> Shape:
        return Shape(self.n_features, self.n_labels)

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        split = str(part)
        rows = self.n_train if split == "train" else self.n_test
        world = _World(self)
        groups = self._groups() if split == "train" and self.groups_rows else None
        for start in range(0, rows, ROWS_A_BLOCK):
            stop = min(start + ROWS_A_BLOCK, rows)
            rng = np.random.default_rng([self.seed, STREAMS[split], start])
            yield world.block(rng, split, start, stop, None if groups is None else groups[start:stop])

    def _groups(self) -> Int64:
        """The group of each train row."""
        order = np.random.default_rng([self.seed, 3]).permutation(self.n_train)
        groups = np.empty(self.n_train, np.int64)
        groups[order] = np.arange(self.n_train) // self.group_size
        return groups


class _World:
    """What is fixed for all rows: how frequent labels and words are, and which words belong to a label."""

    def __init__(self, options: GeneratedReader) -> None:
        self.options = options
        self.label_cdf = _zipf_cdf(options.n_labels, 0.8)
        self.rank_cdf = _zipf_cdf(WORDS_OF_A_LABEL, 0.7)
        self.word_cdf = _zipf_cdf(options.n_features, 1.0)
        self.weight = -np.log(np.diff(self.word_cdf, prepend=0.0))
        rng = np.random.default_rng([options.seed, 0])
        drawn = rng.random((options.n_labels, WORDS_OF_A_LABEL))
        self.words = np.searchsorted(_zipf_cdf(options.n_features, 0.5), drawn, side="right").astype(np.int32)

    def block(self, rng: np.random.Generator, split: str, start: int, stop: int, groups: Int64 | None) -> Block:
        n = stop - start
        label_offsets, labels = self._labels(rng, n)
        offsets, indices, values = self._features(rng, label_offsets, labels)
        lines = np.arange(start, stop, dtype=np.int64) + 1
        block = features_block(f"generated {split}", lines, offsets, indices, values)
        block = with_labels(block, list_array(label_offsets, labels))
        if groups is None:
            return block
        names = pa.array([f"group-{group}" for group in groups.tolist()])
        return Block(block.file, block.rows.append_column("group", names))

    def _labels(self, rng: np.random.Generator, n: int) -> tuple[Int64, Int32]:
        """At least one label per row. A label that is drawn twice counts once."""
        drawn = 1 + rng.poisson(self.options.labels_per_row - 1, n)
        rows = np.repeat(np.arange(n), drawn)
        labels = np.searchsorted(self.label_cdf, rng.random(len(rows)), side="right")
        rows, distinct, _ = _unique_pairs(rows, labels, self.options.n_labels)
        return _offsets(rows, n), distinct

    def _features(self, rng: np.random.Generator, label_offsets: Int64, labels: Int32) -> tuple[Int64, Int32, Float32]:
        """At least one word per row."""
        n = len(label_offsets) - 1
        rows = np.repeat(np.arange(n), 1 + rng.poisson(self.options.words_per_row - 1, n))
        size = np.diff(label_offsets)[rows]
        source = labels[label_offsets[rows] + (rng.random(len(rows)) * size).astype(np.int64)]
        planted = self.words[source, np.searchsorted(self.rank_cdf, rng.random(len(rows)), side="right")]
        background = np.searchsorted(self.word_cdf, rng.random(len(rows)), side="right")
        words = np.where(rng.random(len(rows)) < self.options.noise, background, planted)
        rows, words, counts = _unique_pairs(rows, words, self.options.n_features)
        # Four digits: the logarithm's last bit may differ between processors.
        values = np.round((1 + np.log(counts)) * self.weight[words], 4).astype(np.float32)
        return _offsets(rows, n), words, values


def _zipf_cdf(n: int, exponent: float) -> Float64:
    weights = (np.arange(n) + 3.0) ** -exponent
    cdf: Float64 = np.cumsum(weights) / weights.sum()
    cdf[-1] = 1.0
    return cdf


def _unique_pairs(rows: Int64, ids: Int64, width: int) -> tuple[Int64, Int32, Int64]:
    """The distinct (row, id) in order, and how often each was there."""
    pairs, counts = np.unique(rows.astype(np.int64) * width + ids, return_counts=True)
    return pairs // width, (pairs % width).astype(np.int32), counts


def _offsets(rows: Int64, n: int) -> Int64:
    return np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
