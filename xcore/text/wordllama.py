"""Text becomes dense vectors of meaning: token vectors that ship in a package, averaged (an optional extra).

WordLlama (MIT) is the token embedding of a large language model, reduced to 256 dimensions and trained for the
similarity of sentences. A text's vector is the mean of those of its tokens, scaled to length 1: no network is asked, no
GPU is needed, and words that no training row has are known all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.components import Component, Report
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.arrays import open_arrays, write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, row_blocks
from xcore.numeric.ragged import TokenRows
from xcore.saved import Described, read_json

WEIGHTS, TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
TEXTS_AT_ONCE = 256


class WordLlama(Component):
    """Text vectors of 256 dimensions from the package `wordllama`. Nothing is learned from the training rows."""

    makes: ClassVar[Literal["sparse", "vector"]] = "vector"
    is_slow: ClassVar[bool] = False

    kind: Literal["wordllama"] = "wordllama"
    max_tokens: int = Field(
        512, ge=1, description="Maximum number of tokens per text. The rest of a longer text is ignored."
    )

    def fit(self, blocks: Iterable[Iterable[str]], report: Report) -> FittedEncoder:
        """The encoder; the documents are not looked at."""
        vectors = package_vectors()
        report(1, 1)
        return FittedEncoder(self, vectors, (_package_folder() / TOKENIZER).read_text(encoding="utf8"))


@dataclass(frozen=True)
class FittedEncoder:
    """Token vectors and the tokenizer that numbers them.

    Attributes
    ----------
    options : WordLlama
    vectors : float32 (n_tokens, 256)
    tokenizer : str
        The description of the tokenizer, in JSON.
    """

    options: WordLlama
    vectors: Float32
    tokenizer: str

    @property
    def n_features(self) -> int:
        return int(self.vectors.shape[1])

    def transform(self, texts: Iterable[str]) -> Float32:
        """Vectors of texts, float32 (n, 256); a text without tokens is a row of zeros."""
        split, documents = self._splitter(), list(texts)
        rows = np.zeros((len(documents), self.n_features), np.float32)
        for part in row_blocks(len(documents), TEXTS_AT_ONCE):
            for place, ids in enumerate(split(documents[part]), start=part.start):
                if max(ids, default=-1) >= len(self.vectors):
                    raise ArtifactDamaged(
                        f"tokenizer.json numbers a token {max(ids)}, but vectors.safetensors has {len(self.vectors)} "
                        "vectors; make the artifact again"
                    )
                if ids:
                    total = self.vectors[ids].sum(axis=0, dtype=np.float64)
                    rows[place] = total / max(float(np.linalg.norm(total)), 1e-30)
        return rows

    def sequences(self, texts: Iterable[str]) -> TokenRows:
        """The tokens of each text by their numbers."""
        found = self._splitter()(list(texts))
        ids = np.fromiter((token for own in found for token in own), np.int32)
        return TokenRows(ids, np.cumsum([0, *map(len, found)]), len(self.vectors))

    def _splitter(self) -> Any:
        """A function from texts to lists of token numbers."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise _missing("tokenizers") from None
        try:
            tokenizer = Tokenizer.from_str(self.tokenizer)
        except Exception as error:  # the library raises nothing narrower
            raise ArtifactDamaged(f"tokenizer.json is no tokenizer ({error}); make the artifact again") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.options.max_tokens)

        def split(texts: list[str]) -> list[list[int]]:
            return [encoded.ids for encoded in tokenizer.encode_batch(texts, add_special_tokens=False)]

        return split

    def save(self, directory: Path) -> None:
        """Write ``text.json``, ``tokenizer.json`` and ``vectors.safetensors``: the package is not needed to load it."""
        write_arrays(directory / "vectors.safetensors", {"vectors": self.vectors})
        (directory / "tokenizer.json").write_text(self.tokenizer, encoding="utf8")
        (directory / "text.json").write_text(json.dumps({"options": self.options.options()}, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        options = read_json(directory / "text.json", _About).options
        with ArrayFile(directory / "vectors.safetensors") as file:
            vectors = file.take("vectors", np.float32, (None, None)).finite()
            if not vectors.array.size:
                vectors.refuse("is empty", "at least one vector")
        read_json(directory / "tokenizer.json", dict[str, Any])
        return cls(options, vectors.array, (directory / "tokenizer.json").read_text(encoding="utf8"))


class _About(Described):
    """``text.json``."""

    options: WordLlama


def package_vectors() -> Float32:
    """The vector of each token, float32 (n_tokens, 256), as the package has it."""
    (vectors,) = open_arrays(_package_folder() / WEIGHTS).values()
    return vectors.astype(np.float32)


def _package_folder() -> Path:
    """Where the package is; it is not imported, for it sets up logging of its own."""
    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise _missing("wordllama")
    return Path(next(iter(found.submodule_search_locations)))


def _missing(package: str) -> ConfigError:
    return ConfigError(
        f"text kind wordllama needs the package {package}, which is not installed: pip install 'eyrie[encoder]', "
        "or use text kind tfidf"
    )
