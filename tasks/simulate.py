"""Run a simulation of the theory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component


def run_simulation(context: BuildContext) -> Mapping[str, Any]:
    """One row a setting and estimator."""
    table = context.options.run(context.rng, context.report)
    pq.write_table(table, context.directory / "table.parquet")
    return {"rows": table.num_rows}


def simulation_recipe(simulation: Component, seed: int) -> Recipe:
    """The outcome of a simulation."""
    return Recipe("simulation", run_simulation, simulation, seed=seed)
