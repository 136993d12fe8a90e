"""Rows that stand twice in what was staged: by id or by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xcore.data.fingerprints import later_of_same
from xcore.data.readers.base import Split
from xcore.data.staging import StagedSplit
from xcore.errors import Place


@dataclass(frozen=True)
class SameRow:
    """A staged row that is the same as another."""

    split: Split
    position: int
    place: Place
    id: str


def same_rows(staged: Sequence[StagedSplit], what: Literal["ids", "content"]) -> Iterator[tuple[SameRow, SameRow]]:
    """Each row with the fingerprint of an earlier row, and that row. Cost O(n log n); memory O(n)."""
    splits = [split for split in staged if getattr(split, what) is not None]
    if not splits:
        return
    later, first = later_of_same(np.concatenate([getattr(split, what) for split in splits]))
    wanted, rows = np.unique(np.concatenate([later, first])), dict[int, SameRow]()
    start = 0
    for split in splits:
        own = wanted[(wanted >= start) & (wanted < start + split.rows)] - start
        ids = split.column("id", own).to_pylist() if what == "ids" else [""] * len(own)
        for position, place, key in zip(own.tolist(), split.places(own), ids, strict=True):
            rows[start + position] = SameRow(split.split, position, place, key)
        start += split.rows
    for own_at, first_at in zip(later.tolist(), first.tolist(), strict=True):
        yield rows[own_at], rows[first_at]
