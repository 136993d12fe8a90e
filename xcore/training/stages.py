"""Stages: what is fitted before a model, as an artifact of its own that all models with the same options share.

A model declares its stages by role. One generic step of the pipeline makes each of them; in memory, `prepare` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from xcore.components import Component, silent
from xcore.numeric.matrices import Float32
from xcore.numeric.stopwatch import Stopwatch
from xcore.training.context import FitContext
from xcore.training.data import Matrix, PreparedStage, RowForm, RowsInMemory, TrainingData, Wish


class FittedStage(Protocol):
    """What a stage's ``fit`` returns."""

    def save(self, directory: Path) -> None:
        """Write the stage's files into an existing folder."""
        ...


@runtime_checkable
class RowMap(FittedStage, Protocol):
    """A fitted stage that maps rows to vectors. The same map serves every split, new rows and label texts."""

    @property
    def n_features(self) -> int:
        """Features of the rows that it takes."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of the vectors that it makes."""
        ...

    def transform(self, block: Matrix) -> Float32:
        """Vectors of some rows, float32 (n, dimensions)."""
        ...

    def save(self, directory: Path, name: str = "embedding") -> None:
        """Write ``<name>.json`` and ``<name>.safetensors`` into an existing folder."""
        ...


class Stage(Component):
    """Options of a stage; subclasses set the class attributes, `fit` and `load`."""

    artifact: ClassVar[str]  # kind of the artifact that it becomes
    learns_labels: ClassVar[bool] = False  # whether `fit` looks at the targets
    wants: ClassVar[frozenset[Wish]] = frozenset()  # what it asks for beside rows and targets
    maps_slowly: ClassVar[bool] = False  # mapped rows are kept block by block, so that a kill does not lose them
    is_random: ClassVar[bool] = True  # whether `fit` uses the generator, so that another seed is another artifact

    def fit(self, data: TrainingData, context: FitContext) -> FittedStage:
        """Fit on the training rows."""
        raise TypeError(f"{type(self).__name__} has no fit")

    @classmethod
    def load(cls, directory: Path) -> Any:
        """Open what the fitted stage saved."""
        raise TypeError(f"{cls.__name__} has no load")


@dataclass(frozen=True)
class DeclaredStage:
    """A stage of a model, which rows it sees, and which other stages it uses.

    Attributes
    ----------
    options : Stage
    rows : str or None
        Role of the earlier stage that makes its input rows. None: the rows that the model takes.
    uses : tuple of str
        Roles of earlier stages that it finds in its data.
    """

    options: Stage
    rows: str | None = None
    uses: tuple[str, ...] = ()


class Staged(Protocol):
    """What declares stages: a model."""

    def stages(self, form: RowForm) -> Mapping[str, DeclaredStage]:
        """Role > stage, each after the stages that it depends on; `form` is the form of the rows."""
        ...


def prepare(model: Staged, data: TrainingData, context: FitContext) -> TrainingData:
    """The data with all stages that a model declares; those that are missing are fitted in memory.

    A stage's generator depends on the context's generator and the role only, so a stage that is there already does not
    change what the others draw.
    """
    declared = model.stages(data.form)
    missing = [role for role in declared if role not in data.stages]
    if not missing:
        return data
    seed = int(context.rng.integers(2**63))
    for role in missing:
        rng = np.random.default_rng([seed, *role.encode()])
        quiet = replace(context, rng=rng, report=silent, scratch=context.scratch and context.scratch / role)
        data = data.with_stage(role, fit_stage(declared[role], data, quiet))
    return data


def fit_stage(declared: DeclaredStage, data: TrainingData, context: FitContext) -> PreparedStage:
    """Fit one stage in memory, and map the training rows by it if it maps rows."""
    rows = data.rows if declared.rows is None else data.stage(declared.rows).rows
    if rows is None:
        raise TypeError(f"stage {declared.rows} maps no rows")
    used = {role: data.stages[role] for role in declared.uses}
    mapped = None
    with Stopwatch() as watch:
        fitted = declared.options.fit(replace(data, rows=rows, stages=used), context)
        if isinstance(fitted, RowMap):
            vectors = np.concatenate([fitted.transform(block) for block in rows.blocks()])
            mapped = RowsInMemory(vectors, "vector")
    return PreparedStage(fitted, mapped, watch.seconds, watch.cpu_seconds)
