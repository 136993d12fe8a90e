"""Immutable step results under content ids: recipes name them, the store makes, keeps and checks them."""

from xcore.artifacts.manifest import ArtifactRef, Manifest
from xcore.artifacts.recipe import KeptArtifact, Recipe, Workshop
from xcore.artifacts.store import Artifact, Made, Store

__all__ = ["Artifact", "ArtifactRef", "KeptArtifact", "Made", "Manifest", "Recipe", "Store", "Workshop"]
