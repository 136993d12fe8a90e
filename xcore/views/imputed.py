"""What people see of imputed labels: how good they are, where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xcore.artifacts import Artifact
from xcore.views.base import Point, View


class ImputedView(View):
    """Imputed labels against the truth."""

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        return {"imputation": _against_truth(artifact)}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        return [(0, {f"imputed/{name}": value for name, value in _against_truth(artifact).items()})]

    def sentence(self, artifact: Artifact) -> str:
        known = _against_truth(artifact)
        said = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in known.items())
        return f"Imputed labels against the truth: {said}" if known else ""


def _against_truth(artifact: Artifact) -> dict[str, float]:
    """The counts that compare with true labels; there are none where the truth is not known."""
    counts = artifact.manifest.counts.items()
    return {name.removeprefix("truth_"): float(value) for name, value in counts if name.startswith("truth_")}
