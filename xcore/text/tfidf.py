"""Text becomes TF-IDF features: fitted on the training split, kept as an artifact, applied to any later text.

With tf the count of a term in a document (``1 + ln tf`` if sublinear), df the number of training documents that hold
it, and n their number, a feature is ``tf (ln((1 + n) / (1 + df)) + 1)``, and every row is scaled to length 1. Values,
kept terms and their order are those of scikit-learn's ``TfidfVectorizer(dtype=float32)``, but fitting holds document
frequencies only, never a matrix of counts.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, field_validator, model_validator

from xcore.components import Component, Report
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.checks import Checked
from xcore.numeric.matrices import CSR, Float32, Int32, Int64, csr
from xcore.numeric.parallel import over_blocks
from xcore.numeric.ragged import TokenRows
from xcore.saved import Described, read_json, read_table
from xcore.text.tokens import DEFAULT_PATTERN, Tokens, tokenise

BATCH_DOCUMENTS = 512
WAVE = 8  # batches in memory at once

Result = TypeVar("Result")


class _Words(Component):
    """How text is split into tokens, and how counts are weighted."""

    makes: ClassVar[Literal["sparse", "vector"]] = "sparse"
    is_slow: ClassVar[bool] = False  # a slow one keeps what it has made when it is killed

    lowercase: bool = Field(True, description="Convert text to lower case, so that case does not matter.")
    stop_words: Literal["none", "english"] = Field(
        "none", description="Words to leave out. none: keep all words; english: drop common English words."
    )
    token_pattern: str = Field(
        DEFAULT_PATTERN,
        description="Regular expression that matches a token, with at most one group. Other patterns than the "
        "default are slower.",
    )
    min_ngram: int = Field(1, ge=1, title="Shortest n-gram", description="Smallest number of words per term.")
    max_ngram: int = Field(
        1,
        ge=1,
        title="Longest n-gram",
        description="Largest number of words per term. 2 adds pairs of adjacent words; the vocabulary grows.",
    )
    sublinear_tf: bool = Field(
        True,
        title="Sublinear counts",
        description="Use 1 + ln(count) instead of the count, so that repeated terms weigh less.",
    )

    @field_validator("token_pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str) -> str:
        try:
            n_groups = re.compile(pattern).groups
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from problem
        if n_groups > 1:
            raise ValueError(f"has {n_groups} groups, expected at most one: use (?:...) for the others")
        return pattern

    @model_validator(mode="after")
    def _has_a_range_of_ngrams(self) -> Self:
        if self.min_ngram > self.max_ngram:
            raise ValueError(f"min_ngram={self.min_ngram} must not be above max_ngram={self.max_ngram}")
        return self

    def tokens(self, documents: list[str]) -> Tokens:
        """The terms of a batch of documents."""
        tokens = tokenise(documents, self.token_pattern, lowercase=self.lowercase)
        if self.stop_words == "english":
            tokens = tokens.without(_english_stop_words())
        return tokens.ngrams(self.min_ngram, self.max_ngram)


class Tfidf(_Words):
    """TF-IDF over a vocabulary learned from the training documents.

    Notes
    -----
    One pass; memory is two counts for every distinct term, and a few thousand documents.
    """

    kind: Literal["tfidf"] = "tfidf"
    max_features: int | None = Field(
        5000, ge=1, description="Maximum number of terms. The most frequent ones are kept. Empty: keep all terms."
    )
    # scikit-learn takes 1 for one document and 1.0 for all of them; a web form cannot tell these apart.
    min_df: int = Field(
        1, ge=1, title="Fewest documents", description="Drop terms that occur in fewer training documents than this."
    )
    max_df: float = Field(
        1.0,
        gt=0,
        le=1,
        title="Largest share",
        description="Drop terms that occur in more than this share of the training documents. 1 keeps all.",
    )

    def fit(self, blocks: Iterable[Iterable[str]], report: Report) -> FittedText:
        """Learn the vocabulary and its document frequencies from blocks of training documents."""
        counts = _TermCounts()
        for documents in _reported(blocks, report):
            for tokens, in_documents in _batched(documents, self._counted):
                counts.add(tokens, in_documents)
        terms, frequencies = counts.trimmed(self)
        return FittedText(self, frequencies, counts.n_documents, {term: i for i, term in enumerate(terms)})

    def _counted(self, documents: list[str]) -> tuple[Tokens, Int64]:
        tokens = self.tokens(documents)
        _, distinct, _ = _count(tokens.ids, tokens.offsets, len(tokens.terms))
        return tokens, np.bincount(distinct, minlength=len(tokens.terms))


class HashedTfidf(_Words):
    """TF-IDF over hashed terms, for vocabularies that do not fit in memory. Terms with the same hash share a feature.

    Features are those of scikit-learn's ``HashingVectorizer(alternate_sign=False)``.
    """

    kind: Literal["hashing"] = "hashing"
    n_features: int = Field(
        2**18,
        ge=2,
        le=2**30,
        description="Number of features, a power of two. With fewer features, more terms collide.",
    )

    @field_validator("n_features")
    @classmethod
    def _is_a_power_of_two(cls, n: int) -> int:
        if n & (n - 1):
            raise ValueError(f"must be a power of two, got {n}: use {1 << n.bit_length()}")
        return n

    def fit(self, blocks: Iterable[Iterable[str]], report: Report) -> FittedText:
        """Count the documents of each hashed feature, from blocks of training documents."""
        fitted = FittedText(self, np.zeros(self.n_features, np.int64), 0, None)
        for documents in _reported(blocks, report):
            for counts in _batched(documents, fitted.counts):
                fitted.document_frequency += np.bincount(counts.indices, minlength=self.n_features)
                fitted.n_documents += counts.shape[0]
        if not fitted.n_documents:
            raise ConfigError("no training documents to fit TF-IDF on, expected at least one: check the training split")
        return fitted


@dataclass
class FittedText:
    """A vocabulary (or hash) with document frequencies: turns any text into the same features.

    Attributes
    ----------
    options : Tfidf or HashedTfidf
    document_frequency : int64 (n_features,)
        Training documents that hold each term.
    n_documents : int
        Training documents.
    vocabulary : dict of bytes (UTF-8) to feature, or None
        None for hashing.
    """

    options: Tfidf | HashedTfidf
    document_frequency: Int64
    n_documents: int
    vocabulary: dict[bytes, int] | None

    @property
    def n_features(self) -> int:
        return len(self.document_frequency)

    @property
    def idf(self) -> Float32:
        """``ln((1 + n) / (1 + df)) + 1`` in float32, step by step as scikit-learn rounds it."""
        documents = np.full(self.n_features, self.n_documents + 1, np.float32)
        smoothed = self.document_frequency.astype(np.float32) + np.float32(1)
        return np.log(documents / smoothed) + np.float32(1)

    def terms(self) -> list[str] | None:
        """The term of each feature, or None for hashing."""
        if self.vocabulary is None:
            return None
        return [term.decode("utf-8", "surrogatepass") for term in self.vocabulary]

    def transform(self, texts: Iterable[str]) -> CSR:
        """Features (n, n_features) of any documents: CSR float32, rows of length 1, or 0 where no term is known."""
        idf = self.idf
        parts = list(_batched(texts, lambda documents: self._features(documents, idf)))
        data, indices = ([getattr(part, name) for part in parts] for name in ("data", "indices"))
        sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.indptr) for part in parts)])
        return csr(
            np.concatenate([np.zeros(0, np.float32), *data]),
            np.concatenate([np.zeros(0, np.int32), *indices]),
            np.concatenate([[0], np.cumsum(sizes)]),
            self.n_features,
        )

    def counts(self, documents: list[str]) -> CSR:
        """Occurrences of each feature in each document, column ids ascending."""
        tokens = self.options.tokens(documents)
        features, position = np.unique(self._features_of(tokens.terms), return_inverse=True)
        unknown = int(len(features) > 0 and features[0] < 0)
        ids = (position - unknown).astype(np.int32)[tokens.ids]
        indptr, indices, counts = _count(ids, tokens.offsets, len(features))
        return csr(counts, features[unknown:][indices], indptr, self.n_features)

    def sequences(self, texts: Iterable[str]) -> TokenRows:
        """The known terms of each text as features, in the order of the text; unknown terms are left out."""
        parts = list(_batched(texts, self._sequence))
        sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in parts)])
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        return TokenRows(ids, np.concatenate([[0], np.cumsum(sizes)]), self.n_features)

    def _sequence(self, documents: list[str]) -> TokenRows:
        tokens = self.options.tokens(documents)
        ids = self._features_of(tokens.terms)[tokens.ids]
        known = np.concatenate([[0], np.cumsum(ids >= 0)])
        return TokenRows(ids[ids >= 0], known[tokens.offsets], self.n_features)

    def _features(self, documents: list[str], idf: Float32) -> CSR:
        result = self.counts(documents)
        if self.options.sublinear_tf:
            result.data = np.log(result.data) + np.float32(1)
        result.data *= idf[result.indices]
        _normalise(result.data, result.indptr)
        return result

    def _features_of(self, terms: list[bytes]) -> Int32:
        """The feature of each term; -1 for a term outside the vocabulary."""
        if self.vocabulary is not None:
            return np.fromiter((self.vocabulary.get(term, -1) for term in terms), np.int32, len(terms))
        from sklearn.utils import murmurhash3_32

        hashes = np.fromiter((murmurhash3_32(term) for term in terms), np.int64, len(terms))
        return (np.abs(hashes) % self.n_features).astype(np.int32)

    def save(self, directory: Path) -> None:
        """Write ``features.parquet`` (term, document_frequency, idf; no term for hashing) and ``text.json``."""
        columns = {"document_frequency": pa.array(self.document_frequency), "idf": pa.array(self.idf)}
        if self.vocabulary is not None:
            columns = {"term": pa.array(list(self.vocabulary), pa.binary())} | columns
        pq.write_table(pa.table(columns), directory / "features.parquet")
        description = {"options": self.options.options(), "n_documents": self.n_documents}
        (directory / "text.json").write_text(json.dumps(description, indent=2) + "\n")

    @classmethod
    def load(cls, options: Tfidf | HashedTfidf, directory: Path) -> FittedText:
        """Read what `save` wrote."""
        about = read_json(directory / "text.json", _About)
        path, columns = directory / "features.parquet", {"document_frequency": pa.int64()}
        has_terms = isinstance(options, Tfidf)
        table = read_table(path, columns | ({"term": pa.binary()} if has_terms else {}))
        frequencies = Checked(path, "document_frequency", table["document_frequency"].to_numpy())
        frequencies.within(int(has_terms), about.n_documents + 1)
        if isinstance(options, HashedTfidf) and len(frequencies.array) != options.n_features:
            frequencies.refuse(f"has {len(frequencies.array)} rows", f"n_features, {options.n_features}")
        vocabulary = _vocabulary(path, table["term"].to_pylist()) if has_terms else None
        return cls(options, frequencies.array, about.n_documents, vocabulary)


class _About(Described):
    """``text.json``; `load_text` looks at the options."""

    options: dict[str, Any]
    n_documents: Annotated[int, Field(ge=1, lt=2**31)]


def _vocabulary(path: Path, terms: list[bytes]) -> dict[bytes, int]:
    """The feature of each term; terms are sorted, and there is at least one."""
    if not terms or any(first >= second for first, second in pairwise(terms)):
        raise ArtifactDamaged(f"{path}: its {len(terms)} terms are not sorted and different; make the artifact again")
    return {term: i for i, term in enumerate(terms)}


class _TermCounts:
    """Occurrences and documents of every term seen so far."""

    def __init__(self) -> None:
        self.n_documents = 0
        self._index: dict[bytes, int] = {}
        self._counts = np.zeros((2, 1 << 12), np.int64)  # occurrences, documents

    def add(self, tokens: Tokens, in_documents: Int64) -> None:
        """Take a batch; terms that no token uses (stop words) do not enter the vocabulary."""
        used = np.flatnonzero(in_documents)
        place, index = self._index.setdefault, self._index
        at = np.fromiter((place(tokens.terms[i], len(index)) for i in used.tolist()), np.int64, len(used))
        while len(index) > self._counts.shape[1]:
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)], axis=1)
        self._counts[0, at] += np.bincount(tokens.ids, minlength=len(tokens.terms))[used]
        self._counts[1, at] += in_documents[used]
        self.n_documents += len(tokens.offsets) - 1

    def trimmed(self, options: Tfidf) -> tuple[list[bytes], Int64]:
        """The terms that stay, sorted (UTF-8 sorts as code points do), and their document frequencies."""
        terms = sorted(self._index)
        at = np.fromiter((self._index[term] for term in terms), np.int64, len(terms))
        occurrences, documents = self._counts[:, at]
        kept = np.flatnonzero((documents >= options.min_df) & (documents <= options.max_df * self.n_documents))
        if options.max_features is not None and len(kept) > options.max_features:
            # The very sort of scikit-learn, float32 and all: it decides which of the terms tied at the limit stay.
            most = (-occurrences[kept].astype(np.float32)).argsort()[: options.max_features]
            kept = np.sort(kept[most])
        if not len(kept):
            raise ConfigError(
                f"no term is left of {len(terms)} in {self.n_documents} documents with min_df={options.min_df}, "
                f"max_df={options.max_df}: lower min_df, raise max_df, or look at the text column and token_pattern"
            )
        return [terms[i] for i in kept.tolist()], documents[kept]


def _reported(blocks: Iterable[Iterable[str]], report: Report) -> Iterator[Iterable[str]]:
    """The blocks, each reported when it is done; a stream of unknown length reports what it has seen as the total."""
    total = operator.length_hint(blocks)
    for step, block in enumerate(blocks, start=1):
        yield block
        report(step, max(step, total))


def _batched(documents: Iterable[str], work: Callable[[list[str]], Result]) -> Iterator[Result]:
    """`work` over batches of documents, in order; threads share a wave of batches, the only text in memory."""
    remaining = iter(documents)
    batches = iter(lambda: list(islice(remaining, BATCH_DOCUMENTS)), [])
    while wave := list(islice(batches, WAVE)):
        yield from over_blocks(work, wave)


@cache
def _english_stop_words() -> frozenset[bytes]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(word.encode() for word in ENGLISH_STOP_WORDS)


@numba.njit(cache=True, nogil=True)
def _count(ids: Int32, offsets: Int64, n_ids: int) -> tuple[Int64, Int32, Float32]:
    """Row offsets, distinct ids (ascending) and their counts for each document; negative ids are left out."""
    indptr, seen = np.zeros(len(offsets), np.int64), np.zeros(n_ids, np.int32)
    indices, counts = np.empty(len(ids), np.int32), np.empty(len(ids), np.float32)
    end = 0
    for row in range(len(offsets) - 1):
        for i in ids[offsets[row] : offsets[row + 1]]:
            if i >= 0:
                if seen[i] == 0:
                    indices[end] = i
                    end += 1
                seen[i] += 1
        indices[indptr[row] : end].sort()
        for p in range(indptr[row], end):
            counts[p] = seen[indices[p]]
            seen[indices[p]] = 0
        indptr[row + 1] = end
    return indptr, indices[:end].copy(), counts[:end].copy()


@numba.njit(cache=True, nogil=True)
def _normalise(data: Float32, indptr: Int64) -> None:
    """Scale each row to length 1 in place; scikit-learn squares in float32, and sums and divides in float64."""
    for row in range(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            total += data[p] * data[p]
        length = np.sqrt(total)
        for p in range(indptr[row], indptr[row + 1]):
            data[p] = np.float64(data[p]) / length
