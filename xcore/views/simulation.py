"""What people see of a simulation: a plot, and the table itself as a file."""

from __future__ import annotations

from pathlib import Path

from xcore.artifacts import Artifact
from xcore.views.base import View


class SimulationView(View):
    """A simulation of the theory."""

    logs_files = True

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.report.plots import draw_simulation

        draw_simulation(artifact.directory / "table.parquet", folder / "simulation.png")
