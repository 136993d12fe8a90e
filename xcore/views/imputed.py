"""What people see of imputed labels: how good they are, where the truth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xcore.artifacts import Artifact
from xcore.views.base import Point, View

HELD_OUT = ("group_agreement", "group_precision", "estimated_precision_at_1", "estimated_precision_at_1_error")


class ImputedView(View):
    """Imputed labels against the truth, and what held-out groups say about them."""

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        return {"imputation": _against_truth(artifact)}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        known = _against_truth(artifact) | _by_held_out_groups(artifact)
        return [(0, {f"imputed/{name}": value for name, value in known.items()})]

    def sentence(self, artifact: Artifact) -> str:
        known = _against_truth(artifact)
        said = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in known.items())
        if known:
            return f"Imputed labels against the truth: {said}"
        guess = _by_held_out_groups(artifact).get("held_out_estimated_precision_at_1")
        told = "The rows' own labels are not known. Held-out groups let us estimate that the best label is right in"
        return "" if guess is None else f"{told} {100 * guess:.1f}% of the rows"


def _against_truth(artifact: Artifact) -> dict[str, float]:
    """The counts that compare with true labels; there are none where the truth is not known."""
    counts = artifact.manifest.counts.items()
    return {name.removeprefix("truth_"): float(value) for name, value in counts if name.startswith("truth_")}


def _by_held_out_groups(artifact: Artifact) -> dict[str, float]:
    """What the imputer, or the one that was chosen, says of groups that it held out."""
    details = json.loads((artifact.directory / "details.json").read_text())
    quality = json.loads((artifact.directory / "quality.json").read_text())
    said = details.get("chosen", details).get("held_out", {})
    said |= {name: quality[name] for name in HELD_OUT if name in quality}
    return {f"held_out_{name}": float(value) for name, value in said.items()}
