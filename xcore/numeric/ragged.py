"""Rows of different lengths."""

from __future__ import annotations

from dataclasses import dataclass

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

    def __getitem__(self, rows: slice) -> TokenRows:
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return TokenRows(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0], self.n_tokens)
