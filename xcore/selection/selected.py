"""A selection of labels as it is kept: the choice, the outliers, the map to all labels, and the convergence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pydantic import Field

from xcore.errors import ArtifactDamaged
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile, Checked
from xcore.numeric.matrices import CSR, Float64, Int32, Int64
from xcore.saved import Count, Described, read_json, read_table
from xcore.selection.linearised import Solution

ROLES = ("chosen", "outlier", "reconstructed", "no rows")
LABEL_COLUMNS = {
    "label": pa.int32(),
    "name": pa.string(),
    "role": pa.string(),
    "place": pa.int32(),
    "gain": pa.float64(),
    "rows": pa.int64(),
    "error": pa.float64(),
}
CURVE_COLUMNS = {"solve": pa.string(), "iteration": pa.int32(), "objective": pa.float64(), "residual": pa.float64()}
NO_PLACE = -1


@dataclass(frozen=True)
class Convergence:
    """One ADMM, iteration by iteration.

    Attributes
    ----------
    solve : str
        ``affinity`` for the self-representation, ``map`` for the reconstruction.
    objectives, residuals : float64 (T,)
        See `Solution`.
    n_skipped : int
        Labels that the closed-form test for pure outliers settled without any iteration.
    """

    solve: str
    objectives: Float64
    residuals: Float64
    n_skipped: int

    @classmethod
    def of(cls, solve: str, solution: Solution) -> Convergence:
        return cls(solve, solution.objectives, solution.residuals, len(solution.is_pure_outlier))


@dataclass(frozen=True)
class FittedSelection:
    """A finished selection.

    Attributes
    ----------
    chosen : int32 (k,)
        Label ids in the order of their choice.
    gains : float64 (k,)
        What each added to the objective.
    outliers : int32 (o,)
        Label ids, ascending.
    rows : int64 (L,)
        Training rows of each label.
    errors : float64 (L,)
        Relative error of the reconstruction of each label.
    coefficients : CSR float64 (L, k)
        Row j says how label j is made of the chosen labels.
    names : sequence of str (L,)
        Empty where no name is known.
    convergence : sequence of Convergence
    """

    chosen: Int32
    gains: Float64
    outliers: Int32
    rows: Int64
    errors: Float64
    coefficients: CSR
    names: Sequence[str]
    convergence: Sequence[Convergence]

    @property
    def n_labels(self) -> int:
        return len(self.rows)

    @property
    def trained(self) -> Int32:
        """Labels to train a model on: the chosen ones and the outliers, ascending."""
        return np.union1d(self.chosen, self.outliers).astype(np.int32)

    def role_of_each(self) -> list[str]:
        """The role of each label, one of `ROLES`."""
        roles = np.where(self.rows > 0, 2, 3)
        roles[self.outliers], roles[self.chosen] = 1, 0
        return [ROLES[role] for role in roles.tolist()]

    def save(self, directory: Path) -> None:
        """Write ``selection.json``, ``labels.parquet``, ``convergence.parquet`` and ``map.safetensors``."""
        roles = self.role_of_each()
        counts = _counts_of(roles)
        skipped = {curve.solve: curve.n_skipped for curve in self.convergence}
        about = {"n_labels": self.n_labels, "labels": counts, "skipped": skipped}
        (directory / "selection.json").write_text(json.dumps(about, indent=2) + "\n")
        pq.write_table(self._label_table(roles), directory / "labels.parquet")
        pq.write_table(self._curve_table(), directory / "convergence.parquet")
        arrays = {name: getattr(self.coefficients, name) for name in ("data", "indices", "indptr")}
        kinds = {"data": np.float64, "indices": np.int32, "indptr": np.int64}
        write_arrays(
            directory / "map.safetensors", {name: np.ascontiguousarray(arrays[name], kinds[name]) for name in kinds}
        )

    def _label_table(self, roles: list[str]) -> pa.Table:
        place, gain = np.full(self.n_labels, NO_PLACE, np.int32), np.zeros(self.n_labels)
        place[self.chosen], gain[self.chosen] = np.arange(len(self.chosen)), self.gains
        columns = (
            np.arange(self.n_labels, dtype=np.int32),
            list(self.names),
            roles,
            place,
            gain,
            self.rows,
            self.errors,
        )
        arrays = [pa.array(column, kind) for column, kind in zip(columns, LABEL_COLUMNS.values(), strict=True)]
        return pa.table(dict(zip(LABEL_COLUMNS, arrays, strict=True)))

    def _curve_table(self) -> pa.Table:
        rows = [
            (curve.solve, step + 1, float(objective), float(residual))
            for curve in self.convergence
            for step, (objective, residual) in enumerate(zip(curve.objectives, curve.residuals, strict=True))
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(CURVE_COLUMNS)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, CURVE_COLUMNS.values(), strict=True)]
        return pa.table(dict(zip(CURVE_COLUMNS, arrays, strict=True)))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "selection.json", SelectionSummary)
        path = directory / "labels.parquet"
        table = read_table(path, LABEL_COLUMNS)
        columns = {name: table[name].to_numpy() for name in ("label", "place", "gain", "rows", "error")}
        if not np.array_equal(columns["label"], np.arange(about.n_labels)):
            raise ArtifactDamaged(
                f"{path}: column 'label' must count from 0 to {about.n_labels - 1}; make the artifact again"
            )
        roles = np.array(table["role"].to_pylist(), dtype=object)
        counts = _counts_of(roles.tolist())
        if counts != about.labels or sum(counts.values()) != about.n_labels:
            raise ArtifactDamaged(
                f"{path}: column 'role' says {counts}, but selection.json says {about.labels}; make the artifact again"
            )
        Checked(path, "gain", columns["gain"]).finite()
        errors = Checked(path, "error", columns["error"]).finite().within(0, np.inf).array
        rows = Checked(path, "rows", columns["rows"]).within(0, 2**31).array
        chosen = _ordered(path, columns["place"], roles)
        outliers = np.flatnonzero(roles == "outlier").astype(np.int32)
        with ArrayFile(directory / "map.safetensors") as file:
            coefficients = _taken_map(file, about.n_labels, len(chosen))
        names, convergence = table["name"].to_pylist(), _read_curves(directory, about)
        return cls(chosen, columns["gain"][chosen], outliers, rows, errors, coefficients, names, convergence)


class SelectionSummary(Described):
    """``selection.json``: labels by role, and the labels that each solve skipped as pure outliers."""

    n_labels: Count
    labels: dict[Literal["chosen", "outlier", "reconstructed", "no_rows"], Count]
    skipped: dict[Annotated[str, Field(max_length=20)], Count]


def _counts_of(roles: list[str]) -> dict[str, int]:
    return {role.replace(" ", "_"): roles.count(role) for role in ROLES}


def _ordered(path: Path, place: Int32, roles: Any) -> Int32:
    """The chosen labels in the order of their choice."""
    chosen = np.flatnonzero(roles == "chosen").astype(np.int32)
    order = np.argsort(place[chosen], kind="stable")
    if not np.array_equal(place[chosen][order], np.arange(len(chosen))):
        raise ArtifactDamaged(
            f"{path}: column 'place' must number the {len(chosen)} chosen labels from 0; make the artifact again"
        )
    found: Int32 = chosen[order]
    return found


def _taken_map(file: ArrayFile, n_labels: int, n_chosen: int) -> CSR:
    data = file.take("data", np.float64, (None,)).finite().array
    indices = file.take("indices", np.int32, data.shape).within(0, n_chosen).array
    indptr = file.take("indptr", np.int64, (n_labels + 1,)).offsets(len(data)).array
    matrix: CSR = sp.csr_array((data, indices, indptr), shape=(n_labels, n_chosen))
    return matrix


def _read_curves(directory: Path, about: SelectionSummary) -> list[Convergence]:
    path = directory / "convergence.parquet"
    table = read_table(path, CURVE_COLUMNS)
    solves = table["solve"].to_pylist()
    objectives, residuals = (
        Checked(path, name, table[name].to_numpy()).finite().within(0, np.inf).array
        for name in ("objective", "residual")
    )
    found = []
    for solve in dict.fromkeys(solves):
        own = np.flatnonzero(np.array(solves, dtype=object) == solve)
        found.append(Convergence(solve, objectives[own], residuals[own], about.skipped.get(solve, 0)))
    return found
