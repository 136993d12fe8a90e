"""Rows of different lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcore.numeric.matrices import Int32, Int64


@dataclass(frozen=True)
class TokenRows:
    """Texts as sequences of token numbers.

    Attributes
    ----------
    ids : int32 (n_tokens,)
        Numbers of the tokens in the vocabulary, in the order of the text.
    offsets : int64 (n + 1,)
        Row ``i`` has the tokens ``ids[offsets[i] : offsets[i + 1]]``.
    n_tokens : int
        Size of the vocabulary.
    """

    ids: Int32
    offsets: Int64
    n_tokens: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and size of the vocabulary."""
        return len(self.offsets) - 1, self.n_tokens

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice | Int64) -> TokenRows:
        if not isinstance(rows, slice):
            sizes = np.diff(self.offsets)[rows]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
            return TokenRows(self.ids[places], offsets, self.n_tokens)
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return TokenRows(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0], self.n_tokens)
