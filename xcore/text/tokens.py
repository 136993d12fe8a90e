"""Documents become integers: words by a compiled scanner or a regular expression, then word n-grams.

The default pattern, words of two or more characters, is matched by a scanner over UTF-8 bytes that needs no
interpreter: several times the speed of ``re``, and threads help. Any other pattern goes through ``re``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from xcore.errors import ConfigError
from xcore.numeric.matrices import Int32, Int64

DEFAULT_PATTERN = r"(?u)\b\w\w+\b"

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tokens:
    """The tokens of a block of documents.

    Attributes
    ----------
    ids : int32 (n_tokens,)
        Position in `terms` of each token, document after document.
    offsets : int64 (n_documents + 1,)
        Where each document starts in `ids`.
    terms : list of bytes
        The distinct tokens, as UTF-8.
    """

    ids: Int32
    offsets: Int64
    terms: list[bytes]

    def without(self, stop_words: Collection[bytes]) -> Tokens:
        """Drop every token that is one of `stop_words`; their terms stay, unused."""
        kept = np.array([term not in stop_words for term in self.terms], bool)[self.ids]
        before = np.concatenate([[0], np.cumsum(kept)])
        return Tokens(self.ids[kept], before[self.offsets], self.terms)

    def ngrams(self, smallest: int, largest: int) -> Tokens:
        """Runs of `smallest` to `largest` tokens of one document, joined by a space, as tokens of their own."""
        if (smallest, largest) == (1, 1):
            return self
        document = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        start, run, names = np.arange(len(self.ids)), self.ids.astype(np.int64), self.terms
        unique: dict[bytes, int] = {}
        ids, owners = [], []
        for n in range(1, largest + 1):
            if n > 1:
                run, start = run[start + n <= len(self.ids)], start[start + n <= len(self.ids)]
                inside = document[start] == document[start + n - 1]
                run, start = run[inside], start[inside]
                # A run of n tokens is a run of n - 1 and one token more: a pair of integers.
                pairs, run = np.unique(run * len(self.terms) + self.ids[start + n - 1], return_inverse=True)
                parts = (divmod(pair, len(self.terms)) for pair in pairs.tolist())
                names = [names[head] + b" " + self.terms[last] for head, last in parts]
            if n >= smallest:
                ids.append(np.array([unique.setdefault(name, len(unique)) for name in names], np.int32)[run])
                owners.append(document[start])
        owner = np.concatenate(owners)
        sizes = np.bincount(owner, minlength=len(self.offsets) - 1)
        by_document = np.argsort(owner, kind="stable")
        return Tokens(np.concatenate(ids)[by_document], np.concatenate([[0], np.cumsum(sizes)]), list(unique))


def tokenise(documents: Sequence[str], pattern: str = DEFAULT_PATTERN, *, lowercase: bool = True) -> Tokens:
    """Find the tokens of each document, exactly as ``re.findall(pattern, document)`` does.

    With `lowercase`, documents go through ``str.lower`` first. A pattern may have one group, which is then the token.
    """
    for i, document in enumerate(documents):
        if not isinstance(document, str):
            raise ConfigError(
                f"document {i} of the block is {type(document).__name__}, expected text: "
                "drop rows without text, or make them an empty string"
            )
    prepared = [document.lower() for document in documents] if lowercase else documents
    return _scanned(prepared) if pattern == DEFAULT_PATTERN else _matched(prepared, pattern)


def _scanned(documents: Sequence[str]) -> Tokens:
    encoded = [document.encode("utf-8", "surrogatepass") for document in documents]
    text = b"".join(encoded)
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    ids, offsets, starts, stops = _scan(np.frombuffer(text, np.uint8), ends, _word_characters())
    terms = [text[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return Tokens(ids, offsets, terms)


def _matched(documents: Sequence[str], pattern: str) -> Tokens:
    find = re.compile(pattern).findall
    unique: dict[str, int] = {}
    found = [[unique.setdefault(token, len(unique)) for token in find(document)] for document in documents]
    offsets = np.cumsum([0, *map(len, found)], dtype=np.int64)
    ids = np.fromiter((i for row in found for i in row), np.int32, int(offsets[-1]))
    return Tokens(ids, offsets, [term.encode("utf-8", "surrogatepass") for term in unique])


@cache
def _word_characters() -> npt.NDArray[np.bool_]:
    r"""For each code point, whether ``re`` counts it as \w."""
    text = "".join(map(chr, range(0x110000)))
    table = np.zeros(len(text), bool)
    table[[match.start() for match in re.finditer(r"\w", text)]] = True
    return table


@numba.njit(cache=True, nogil=True)
def _code_point(text: Bytes, at: int) -> tuple[np.int64, int]:
    """The code point that starts at a byte of valid UTF-8, and its length in bytes."""
    first = np.int64(text[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | (text[at + 1] & 0x3F), 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (text[at + 1] & 0x3F) << 6 | (text[at + 2] & 0x3F), 3
    high = (first & 0x07) << 18 | (text[at + 1] & 0x3F) << 12
    return high | (text[at + 2] & 0x3F) << 6 | (text[at + 3] & 0x3F), 4


class _Table(NamedTuple):
    """Distinct words so far, by open addressing: where each first stands in the text."""

    slots: Int32  # term ids, -1 where free; a power of two, at most half full
    hashes: npt.NDArray[np.uint64]
    starts: Int64
    stops: Int64


@numba.njit(cache=True, nogil=True)
def _scan(text: Bytes, ends: Int64, is_word: npt.NDArray[np.bool_]) -> tuple[Int32, Int64, Int64, Int64]:
    """Ids of all words, offsets of the documents, and the bytes where each distinct word first stands.

    Words are maximal runs of word characters, of two characters or more; their hash is 64-bit FNV-1a.
    """
    ids, offsets = np.empty(len(text) // 2 + 1, np.int32), np.zeros(len(ends), np.int64)
    table, n_ids, n_terms = _empty_table(1 << 12), 0, 0
    for document in range(len(ends) - 1):
        at, end = ends[document], ends[document + 1]
        while at < end:
            start, n_characters, code = at, 0, np.uint64(14695981039346656037)
            while at < end:
                character, size = _code_point(text, at)
                if not is_word[character]:
                    break
                for i in range(at, at + size):
                    code = (code ^ np.uint64(text[i])) * np.uint64(1099511628211)
                at += size
                n_characters += 1
            if n_characters >= 2:
                slot = _slot(text, start, at, code, table)
                if table.slots[slot] < 0:
                    table.slots[slot] = n_terms
                    table.hashes[n_terms], table.starts[n_terms], table.stops[n_terms] = code, start, at
                    n_terms += 1
                ids[n_ids] = table.slots[slot]
                n_ids += 1
                if 2 * n_terms >= len(table.slots):
                    table = _grown(table, n_terms)
            if at < end:
                at += _code_point(text, at)[1]
        offsets[document + 1] = n_ids
    return ids[:n_ids].copy(), offsets, table.starts[:n_terms].copy(), table.stops[:n_terms].copy()


@numba.njit(cache=True, nogil=True)
def _empty_table(size: int) -> _Table:
    half = size // 2
    return _Table(
        np.full(size, -1, np.int32), np.empty(half, np.uint64), np.empty(half, np.int64), np.empty(half, np.int64)
    )


@numba.njit(cache=True, nogil=True)
def _slot(text: Bytes, start: int, stop: int, code: np.uint64, table: _Table) -> np.uint64:
    """The slot that holds the word ``text[start:stop]``, or the free one where it belongs."""
    last = np.uint64(len(table.slots) - 1)
    slot = (code ^ (code >> np.uint64(32))) & last
    while table.slots[slot] >= 0:
        term = table.slots[slot]
        if table.hashes[term] == code and table.stops[term] - table.starts[term] == stop - start:
            i = 0
            while i < stop - start and text[table.starts[term] + i] == text[start + i]:
                i += 1
            if i == stop - start:
                return slot
        slot = (slot + np.uint64(1)) & last
    return slot


@numba.njit(cache=True, nogil=True)
def _grown(table: _Table, n_terms: int) -> _Table:
    """The same words with twice the room; they are known to differ, so only free slots are looked for."""
    new: _Table = _empty_table(2 * len(table.slots))
    new.hashes[:n_terms] = table.hashes[:n_terms]
    new.starts[:n_terms] = table.starts[:n_terms]
    new.stops[:n_terms] = table.stops[:n_terms]
    last = np.uint64(len(new.slots) - 1)
    for term in range(n_terms):
        code = new.hashes[term]
        slot = (code ^ (code >> np.uint64(32))) & last
        while new.slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & last
        new.slots[slot] = term
    return new
