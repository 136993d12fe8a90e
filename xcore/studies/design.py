"""The design of a study: its factors, and what each of its cells stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from xcore.components import Component

DESIGN_FILE = "study.json"
Plot = Literal["bars", "lines", "curves", "none"]


class Level(Component):
    """One value of a factor, as tables and plots show it."""

    label: str = Field(description="Name of the level in tables and plots.")
    family: str = Field("", description="Kind of the component. Empty for a plain value.")
    number: float | None = Field(None, description="Position on a numeric axis, if the level has one.")
    axis: str = Field("", description="Meaning of the number.")


class Cell(Component):
    """What one result stands for."""

    levels: tuple[Level, ...] = Field(description="The level of each factor.")
    seed: int = Field(ge=0, description="Seed of the run.")
    reference: int | None = Field(None, description="Index of the cell that this one is compared with.")
    tuned: tuple[str, ...] = Field((), description="Options of the model that were chosen on validation rows.")

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels by their labels: what the cells of all seeds have in common."""
        return tuple(level.label for level in self.levels)

    @property
    def name(self) -> str:
        """All levels in one word."""
        return ", ".join(self.labels)


class StudyDesign(Component):
    """What a study compares, and how it is shown."""

    factors: tuple[str, ...] = Field(min_length=1, description="Parameters that differ, as dotted paths.")
    cells: tuple[Cell, ...] = Field(min_length=1, description="The cell of each result, in the same order.")
    metrics: tuple[str, ...] = Field(("precision_at_*",), description="Metrics to show. `*` matches any text.")
    plot: Plot = Field("bars", description="Type of the plot.")

    def save(self, directory: Path) -> None:
        """Write the design beside a study's tables."""
        (directory / DESIGN_FILE).write_text(self.model_dump_json(indent=1))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        return cls.model_validate_json((directory / DESIGN_FILE).read_text())
