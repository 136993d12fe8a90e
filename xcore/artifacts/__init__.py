"""Immutable step results under content ids: recipes name them, the store makes, keeps and checks them."""

from xcore.artifacts.manifest import ArtifactRef, Manifest
from xcore.artifacts.recipe import BuildContext, KeptArtifact, Recipe
from xcore.artifacts.store import Artifact, MakeResult, Store

__all__ = ["Artifact", "ArtifactRef", "BuildContext", "KeptArtifact", "MakeResult", "Manifest", "Recipe", "Store"]
