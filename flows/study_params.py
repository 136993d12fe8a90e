"""The parameters of `study`: those of the pipeline, the factors that differ, and how cells are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from flows.factors import check_factors, combinations, levels_of, params_with, place_of
from flows.params import PipelineParams
from tasks.curves import Measuring
from xcore.data.readers.base import Split
from xcore.errors import ConfigError
from xcore.metrics.family import evaluated_keys, headline_metrics
from xcore.models.negative_sampling import NegativeSampling
from xcore.studies.design import Level, Plot
from xcore.studies.table import chosen_metrics
from xcore.training.context import CurvePoints

CURVE_METRICS = (
    "accuracy",
    "log_likelihood",
    "seconds",
    "cpu_seconds",
    "sampler_seconds",
    "own_seconds",
    "reference_seconds",
    "times_sooner",
)


class Tuning(Measuring):
    """How settings are chosen. Each is trained for a few epochs; the one with the best accuracy is used."""

    epochs: int = Field(
        2, ge=1, description="Number of passes over the positives in each trial. More passes cost more time."
    )
    split: Split = Field(
        "dev", description="Split on which settings are chosen. It must not be test, nor the split of the curves."
    )
    rows: int = Field(2000, ge=1, description="Maximum number of rows to measure on. They are drawn at random.")
    points: CurvePoints = Field("last", description="When each trial is measured. Only the last point decides.")
    grids: dict[str, dict[str, tuple[Any, ...]]] = Field(
        {},
        description="Settings to try. For each level, named by its label: options of the model and the values "
        "of each option. All combinations are tried.",
    )


class StudyParams(PipelineParams):
    """Parameters of `study`: those of the pipeline, and what differs between its cells."""

    factors: dict[str, tuple[Any, ...]] = Field(
        min_length=1,
        description="Parameters of the pipeline that differ, and the values of each. Name a parameter by its "
        "dotted path, such as imputer or text.max_features. Each combination of values is one cell.",
    )
    seeds: tuple[int, ...] = Field((), description="Seeds to run each cell with. Empty: only `seed`.")
    compare_with: dict[str, Any] = Field(
        {},
        description="The reference: a value for one or more factors. Each cell is compared with the cell that "
        "has these values.",
    )
    metrics: tuple[str, ...] = Field(
        (), description="Metrics to show in the tables, such as precision_at_1 or psp_at_*. Empty: the usual ones."
    )
    plot: Plot = Field(
        "bars",
        description="bars: one bar per cell; lines: metric over the first numeric factor; curves: learning curves.",
    )
    parallel: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of steps that run at the same time. Set it to 1 if you compare measured times.",
    )
    curve: Measuring | None = Field(
        None,
        description="Measure a learning curve in each cell instead of evaluating the final model. Empty: "
        "evaluate the final model.",
    )
    tuning: Tuning | None = Field(
        None, description="Choose settings of the model before the curve is measured. Empty: use the settings as given."
    )

    @field_validator("factors", mode="before")
    @classmethod
    def _nested_paths(cls, factors: Any) -> Any:
        """Paths may be written as nested mappings too, which is what ``--set factors.model.method=...`` makes."""
        return _dotted(factors) if isinstance(factors, Mapping) else factors

    @property
    def run_name(self) -> str:
        return self.name

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds to run with."""
        return self.seeds or (self.seed,)

    def cells(self) -> list[tuple[dict[str, Any], PipelineParams]]:
        """Every combination of the factors' values, with the parameters that it makes."""
        return [(values, params_with(self, values, "factors")) for values in combinations(self.factors)]

    def levels(self) -> dict[str, list[Level]]:
        """The levels of each factor, as people see them."""
        return levels_of(self.factors, self.cells())

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        """The metrics to tabulate."""
        if self.curve:
            usual = tuple(name for name in CURVE_METRICS if name != "sampler_seconds")
        else:
            usual = (f"{headline_metrics()[0].name}_at_*",)
        return self.metrics or usual

    def grid_of(self, labels: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        """The settings to try in a cell, by the labels of its levels."""
        grids = self.tuning.grids if self.tuning else {}
        found = [label for label in labels if label in grids]
        if len(found) > 1:
            raise ConfigError(
                f"tuning.grids: {' and '.join(found)} are levels of one cell; give a grid for one factor's levels only"
            )
        return grids[found[0]] if found else {}

    @model_validator(mode="after")
    def _can_be_planned(self) -> Self:
        try:
            check_factors(self.factors)
            cells = self.cells()
            levels = levels_of(self.factors, cells)
            self._check_reference()
            self._check_metrics()
            self._check_curves(levels, [params for _, params in cells])
        except ConfigError as error:
            raise ValueError(str(error)) from None
        numbered = any(level.number is not None for found in levels.values() for level in found)
        if self.plot == "lines" and not numbered:
            raise ValueError("plot: lines need a factor with numbers, and no factor has any; choose bars")
        return self

    def _check_reference(self) -> None:
        for path, value in self.compare_with.items():
            if path not in self.factors:
                raise ConfigError(f"compare_with.{path}: no such factor; expected one of {', '.join(self.factors)}")
            try:
                place_of(path, value, self.factors)
            except StopIteration:
                known = ", ".join(map(str, self.factors[path]))
                raise ConfigError(f"compare_with.{path}: got {value}, expected one of the factor's: {known}") from None

    def _check_metrics(self) -> None:
        known = list(CURVE_METRICS) if self.curve else evaluated_keys(self.evaluation.ks)
        for pattern in self.metrics:
            if not pattern.startswith("imputed/") and not chosen_metrics(known, [pattern]):
                raise ConfigError(f"metrics: got {pattern}, expected some of {', '.join(known)}")

    def _check_curves(self, levels: dict[str, list[Level]], cells: list[PipelineParams]) -> None:
        if self.curve is None:
            if self.plot == "curves" or self.tuning:
                raise ConfigError("plot curves and tuning are for learning curves: set curve, such as {epochs: 10}")
            return
        other = next((params.model.kind for params in cells if not isinstance(params.model, NegativeSampling)), None)
        if other:
            raise ConfigError(f"curve: model {other} cannot be measured while it trains; use negative-sampling")
        if self.tuning:
            self._check_tuning(self.tuning, self.curve, {level.label for found in levels.values() for level in found})

    def _check_tuning(self, tuning: Tuning, curve: Measuring, labels: set[str]) -> None:
        if tuning.split in {"test", curve.split}:
            raise ConfigError(
                f"tuning.split is {tuning.split} and curve.split is {curve.split}: settings must be chosen on other "
                "rows than those of the curves, and never on test. Use dev, with data.holdout.dev if there is none"
            )
        for label, grid in tuning.grids.items():
            if label not in labels:
                raise ConfigError(f"tuning.grids.{label}: no such level; expected one of {', '.join(sorted(labels))}")
            wrong = next((path for path in grid if not path.startswith("model.")), None)
            if wrong:
                raise ConfigError(
                    f"tuning.grids.{label}.{wrong}: expected an option of the model, such as model.epochs"
                )


def _dotted(factors: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, values in factors.items():
        found |= _dotted(values, f"{prefix}{name}.") if isinstance(values, Mapping) else {f"{prefix}{name}": values}
    return found
