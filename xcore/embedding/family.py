"""The family of embeddings, by kind, and how a fitted one is opened."""

import json
from pathlib import Path
from typing import TypeAlias

from xcore.embedding.pca import FittedPca, Pca
from xcore.training.stages import RowMap

AnyEmbedding: TypeAlias = Pca


def load_embedding(directory: Path, name: str = "embedding") -> RowMap:
    """Read what a fitted embedding saved under a name."""
    kind = json.loads((directory / f"{name}.json").read_text())["kind"]
    return {"pca": FittedPca}[kind].load(directory, name)
