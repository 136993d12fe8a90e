"""What people see of a learning curve: its points, with the seconds that had been spent at each."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from xcore.artifacts import Artifact
from xcore.views.base import Point, View


class CurveView(View):
    """A learning curve."""

    logs_files = True

    def points(self, artifact: Artifact) -> Sequence[Point]:
        seconds = artifact.manifest.counts["seconds"]
        found = []
        for place, point in enumerate(pq.read_table(artifact.directory / "curve.parquet").to_pylist()):
            step = int(point.pop("step"))
            known = {name: value for name, value in point.items() if value is not None}
            known |= {clock: times[place] for clock, times in seconds.items()}
            found.append((step, {f"curve/{name}": value for name, value in known.items()}))
        return found
