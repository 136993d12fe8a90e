"""What people see of a model: its learning curves while it trains."""

from __future__ import annotations

from collections.abc import Sequence

from xcore.artifacts import Artifact
from xcore.views.base import Point, View


class ModelView(View):
    """A trained model."""

    def points(self, artifact: Artifact) -> Sequence[Point]:
        known = artifact.manifest.counts.get("explained_precision")
        return [] if known is None else [(0, {"bags/explained_precision": float(known)})]

    def sentence(self, artifact: Artifact) -> str:
        known = artifact.manifest.counts.get("explained_precision")
        return "" if known is None else f"Labels of bags explained by a row that carries them: {known:.3f}"

    def progress_group(self, name: str) -> str:
        return "train" if name == "model" else f"train/{name}"
