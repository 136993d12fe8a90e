"""What people see of a model: its learning curves while it trains."""

from __future__ import annotations

from collections.abc import Sequence

from xcore.artifacts import Artifact
from xcore.views.base import Point, View


class ModelView(View):
    """A trained model."""

    def points(self, artifact: Artifact) -> Sequence[Point]:
        counts = artifact.manifest.counts
        known = {
            name.replace("train_", "train_rows/"): float(counts[name])
            for name in counts
            if name.startswith("train_precision_at_")
        }
        if "explained_precision" in counts:
            known["bags/explained_precision"] = float(counts["explained_precision"])
        return [(0, known)] if known else []

    def sentence(self, artifact: Artifact) -> str:
        known = artifact.manifest.counts.get("explained_precision")
        return "" if known is None else f"Labels of bags explained by a row that carries them: {known:.3f}"

    def progress_group(self, name: str) -> str:
        return "train" if name == "model" else f"train/{name}"
