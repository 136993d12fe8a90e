"""What people see of a comparison of two models."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xcore.artifacts import Artifact
from xcore.views.base import Point, View

TRACKED = ("difference", "low", "high", "share_above_margin")


class ComparisonView(View):
    """What decided whether a model was promoted, as metrics of the run that was judged."""

    logs_files = True

    def points(self, artifact: Artifact) -> Sequence[Point]:
        facts = json.loads((artifact.directory / "comparison.json").read_text())
        return [(0, {f"promotion/{name}": facts[name] for name in TRACKED if name in facts})]
