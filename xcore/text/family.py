"""The family of text featurisers, by kind, and how a fitted one is opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.saved import read_options
from xcore.text.tfidf import FittedText, HashedTfidf, Tfidf
from xcore.text.transformer import FittedTransformer, Transformer
from xcore.text.wordllama import FittedEncoder, WordLlama
from xcore.training.data import RowForm

AnyText: TypeAlias = Annotated[Tfidf | HashedTfidf | WordLlama | Transformer, Field(discriminator="kind")]
AnyFittedText: TypeAlias = FittedText | FittedEncoder | FittedTransformer


def load_text(directory: Path) -> AnyFittedText:
    """Read what a fitted featuriser wrote."""
    options = read_options(directory / "text.json", AnyText)
    if isinstance(options, WordLlama):
        return FittedEncoder.load(directory)
    if isinstance(options, Transformer):
        return FittedTransformer.load(directory)
    return FittedText.load(options, directory)


def terms_of(text: AnyFittedText | None, form: RowForm) -> Sequence[str] | None:
    """The word of each feature of sparse rows; None for other rows and for hashed words."""
    return text.terms() if isinstance(text, FittedText) and form == "sparse" else None
