"""The family of simulations, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.simulation.simulations import ClassificationSimulation, RegressionSimulation

AnySimulation: TypeAlias = Annotated[RegressionSimulation | ClassificationSimulation, Field(discriminator="kind")]
