"""LIBSVM multi-label text without a header: ``label,label feature:value feature:value`` a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from xcore.data.readers.base import EVERYTHING, INT32_MAX, MOST_LABELS, Block, Form, Part, Reader, Shape, Wanted
from xcore.data.readers.sparse_errors import Grammar
from xcore.data.readers.sparse_rows import block_of_lines
from xcore.data.readers.streams import line_blocks
from xcore.data.readers.xmc import parsed


class LibsvmReader(Reader):
    """LIBSVM multi-label text without a header; ``#`` starts a comment, blank lines are skipped, labels start at 0."""

    integer_labels: ClassVar[bool] = True
    kind: Literal["libsvm"] = "libsvm"
    first_index: Literal[0, 1, "auto"] = Field(
        "auto", description="Id of the first feature. auto: 1, or 0 if feature 0 occurs in any file."
    )
    n_features: int | None = Field(
        None, ge=1, le=INT32_MAX, description="Number of features. Empty: taken from the files."
    )
    n_labels: int | None = Field(None, ge=1, le=INT32_MAX, description="Number of labels. Empty: taken from the files.")

    @model_validator(mode="after")
    def _range_needs_first_index(self) -> Self:
        if self.n_features is not None and self.first_index == "auto":
            raise ValueError("n_features is given but first_index is auto: say whether feature ids start at 0 or 1")
        return self

    @property
    def form(self) -> Form:
        return "sparse"

    def shape(self, parts: Sequence[Part]) -> Shape:
        return Shape(self.n_features, self.n_labels)

    def index_shift(self, lowest: int) -> int:
        return 1 if self.first_index == "auto" and lowest >= 1 else 0

    def blocks(self, part: Part, shape: Shape, block_bytes: int, wanted: Wanted = EVERYTHING) -> Iterator[Block]:
        path = Path(str(part))
        first = 0 if self.first_index == "auto" else self.first_index
        grammar = Grammar(
            comments=True,
            first_feature=first,
            last_feature=INT32_MAX - 1 if self.n_features is None else self.n_features - 1 + first,
            last_label=(self.n_labels or MOST_LABELS) - 1,
        )
        for lines in parsed(line_blocks(path, block_bytes), str(path), grammar):
            if len(lines.lines):
                yield block_of_lines(str(path), lines)
