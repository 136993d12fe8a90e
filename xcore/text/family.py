"""The family of text featurisers, by kind, and how a fitted one is opened."""

import json
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from xcore.text.tfidf import FittedText, HashedTfidf, Tfidf
from xcore.text.wordllama import FittedEncoder, WordLlama

AnyText: TypeAlias = Annotated[Tfidf | HashedTfidf | WordLlama, Field(discriminator="kind")]
AnyFittedText: TypeAlias = FittedText | FittedEncoder


def load_text(directory: Path) -> AnyFittedText:
    """Read what a fitted featuriser wrote."""
    description = json.loads((directory / "text.json").read_text())
    options: Tfidf | HashedTfidf | WordLlama = TypeAdapter(AnyText).validate_python(description["options"])
    if isinstance(options, WordLlama):
        return FittedEncoder.load(directory)
    return FittedText.load(options, directory)
