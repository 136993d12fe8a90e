"""The family of embeddings, by kind, and how a fitted one is opened."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from xcore.embedding.network_features import FittedNetworkFeatures, NetworkFeatures
from xcore.embedding.pca import FittedPca, Pca
from xcore.saved import read_json

AnyEmbedding: TypeAlias = Annotated[Pca | NetworkFeatures, Field(discriminator="kind")]
AnyFittedEmbedding: TypeAlias = FittedPca | FittedNetworkFeatures


def load_embedding(directory: Path, name: str = "embedding") -> AnyFittedEmbedding:
    """Read what a fitted embedding saved under a name."""
    kind = read_json(directory / f"{name}.json", _About).kind
    return FittedPca.load(directory, name) if kind == "pca" else FittedNetworkFeatures.load(directory, name)


class _About(BaseModel):
    """What the description of every embedding holds; the loader of the kind looks at the rest."""

    kind: Literal["pca", "network"]
