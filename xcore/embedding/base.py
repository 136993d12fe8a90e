"""What every embedding is: a stage that maps rows to vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xcore.training.data import Matrix, Rows
from xcore.training.stages import Stage


class Embedding(Stage):
    """Options of a map from rows to dense vectors; what its `fit` returns is a `RowMap`."""

    artifact: ClassVar[str] = "embedding"


@dataclass(frozen=True)
class BlocksOf:
    """The rows of a split block by block, as often as asked."""

    rows: Rows

    def __iter__(self) -> Iterator[Matrix]:
        return self.rows.blocks()
