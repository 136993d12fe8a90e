"""Run a simulation of the theory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from xcore.artifacts import Recipe, Workshop
from xcore.components import Component


def run_simulation(workshop: Workshop) -> Mapping[str, Any]:
    """One row a setting and estimator."""
    table = workshop.options.run(workshop.rng, workshop.report)
    pq.write_table(table, workshop.directory / "table.parquet")
    return {"rows": table.num_rows}


def simulation_recipe(simulation: Component, seed: int) -> Recipe:
    """The outcome of a simulation."""
    return Recipe("simulation", run_simulation, simulation, seed=seed)
