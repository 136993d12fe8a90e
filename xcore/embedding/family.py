"""The family of embeddings, by kind, and how a fitted one is opened."""

import json
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.embedding.network_features import FittedNetworkFeatures, NetworkFeatures
from xcore.embedding.pca import FittedPca, Pca

AnyEmbedding: TypeAlias = Annotated[Pca | NetworkFeatures, Field(discriminator="kind")]
AnyFittedEmbedding: TypeAlias = FittedPca | FittedNetworkFeatures


def load_embedding(directory: Path, name: str = "embedding") -> AnyFittedEmbedding:
    """Read what a fitted embedding saved under a name."""
    kind = json.loads((directory / f"{name}.json").read_text())["kind"]
    return FittedPca.load(directory, name) if kind == "pca" else FittedNetworkFeatures.load(directory, name)
