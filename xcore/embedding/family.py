"""The family of embeddings, by kind, and how a fitted one is opened."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.components import members_of
from xcore.embedding.network_features import FittedNetworkFeatures, NetworkFeatures
from xcore.embedding.pca import FittedPca, Pca
from xcore.saved import read_kind

AnyEmbedding: TypeAlias = Annotated[Pca | NetworkFeatures, Field(discriminator="kind")]
AnyFittedEmbedding: TypeAlias = FittedPca | FittedNetworkFeatures
EMBEDDING_KINDS = members_of(AnyEmbedding)


def load_embedding(directory: Path, name: str = "embedding") -> AnyFittedEmbedding:
    """Read what a fitted embedding saved under a name."""
    kind = read_kind(directory / f"{name}.json", EMBEDDING_KINDS)
    return FittedPca.load(directory, name) if kind == "pca" else FittedNetworkFeatures.load(directory, name)
