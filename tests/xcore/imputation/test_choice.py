"""The measure by which `auto` chooses: the precision at 1 that groups alone let one estimate."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.judged_imputation import ModelSolver
from xcore.components import Report
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import ClusterGroups
from xcore.imputation.auto import Auto, Trial, choose, default_of, has_similar_members
from xcore.imputation.base import Imputer
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.heldout import Explained, HeldOutGroups
from xcore.imputation.imputed import Imputed
from xcore.models.ova import Ova
from xcore.models.parabel import Parabel
from xcore.numeric.matrices import CSR, TopK, csr

N_LABELS = 12


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def planted(n: int, seed: int = 0) -> tuple[CSR, CSR]:
    """Rows with one of some labels of unequal frequency, near the label's own point."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(2, N_LABELS + 2)
    label = rng.choice(N_LABELS, n, p=shares / shares.sum())
    return as_csr(rng.random((N_LABELS, 20))[label] + 0.3 * rng.random((n, 20))), as_csr(np.eye(N_LABELS)[label])


class Guessing:
    """A solver that knows a share of the rows' labels, and names any label for the others."""

    two_readings = False

    def __init__(self, X: CSR, Y: CSR, share: float) -> None:
        self._rows = {row.tobytes(): place for place, row in enumerate(X.toarray())}
        self._labels = Y.toarray().argmax(axis=1)
        rng = np.random.default_rng(3)
        knows = rng.random(len(self._labels)) < share
        self._best = np.where(knows, self._labels, rng.integers(N_LABELS, size=len(knows)))

    def best_labels(self, X: CSR, imputed: Imputed, rows: CSR, k: int) -> TopK:
        places = np.array([self._rows[row.tobytes()] for row in rows.toarray()])
        best = self._best[places]
        return TopK(np.repeat(best[:, None], k, axis=1).astype(np.int32), np.ones((len(best), k), np.float32))

    def precision(self) -> float:
        return float((self._best == self._labels).mean())


@pytest.mark.parametrize("merge", ["list", "set"])
@pytest.mark.parametrize("size", [3, 10])
def test_the_precision_of_a_model_is_estimated_from_groups_alone(merge: Literal["list", "set"], size: int) -> None:
    X, Y = planted(6000)
    groups = RandomGroups(size=size, merge=merge).group(X, Y, np.random.default_rng(0))
    for share in (0.2, 0.8):
        solver = Guessing(X, Y, share)
        held_out = HeldOutGroups(X, groups, np.random.default_rng(0), 0.5, 10_000, solver=solver)
        found = held_out.explained(Baseline(), np.random.default_rng(0)).quality()["estimated_precision_at_1"]
        assert found == pytest.approx(solver.precision(), abs=0.06)


def explained(right: list[float]) -> Explained:
    nothing = np.zeros(len(right))
    return Explained(nothing, nothing, 0.0, 0.0, np.array(right), np.full(len(right), 10))


def test_the_last_imputer_stands_unless_another_leads_by_two_standard_errors() -> None:
    standing = Trial(Auto(), "weight", explained([5, 5, 5, 5]))
    surely = Trial(Baseline(), "weight", explained([6, 7, 6, 7]))
    perhaps = Trial(Baseline(), "weight", explained([9, 4, 8, 5]))
    lead, error = perhaps.explained.lead(standing.explained)
    assert error < lead < 2 * error
    assert choose([surely, standing], standing) is surely
    assert choose([perhaps, standing], standing) is standing


def test_models_that_take_confidences_as_targets_learn_from_soft_chances_unless_others_lead() -> None:
    soft, hard = (Trial(Disaggregate(assign=way), "target", explained([5, 5])) for way in ("soft", "hard"))
    assert default_of([soft, hard], ModelSolver(Ova())) is soft
    assert default_of([soft, hard], ModelSolver(Parabel())) is hard
    assert default_of([soft, hard], None) is hard
    assert default_of([hard], ModelSolver(Ova())) is hard


def test_a_lead_has_the_standard_error_of_the_groups() -> None:
    lead, error = explained([6, 8]).lead(explained([5, 5]))
    assert lead == pytest.approx(4 / 20)
    assert error == pytest.approx(np.sqrt(1 + 1) / 20)


class Hedging(Imputer):
    """The truth of the groups that it sees with confidence .9, and all other labels of the group with .1."""

    kind: Literal["hedging"] = "hedging"
    truth: ClassVar[CSR]

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        of_group = (groups.members.T @ groups.labels).toarray() > 0
        return Imputed(as_csr(np.where(of_group, 0.1 + 0.8 * self.truth.toarray(), 0)))


def test_the_reading_is_chosen_with_the_imputer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hedged labels that count as positives of small weight mislead a tree; as targets they do not."""
    X, Y = planted(600)
    groups = RandomGroups(size=10).group(X, Y, np.random.default_rng(0))
    Hedging.truth = Y
    monkeypatch.setattr(Auto, "_candidates", lambda self, groups: [Baseline(), Hedging()])
    solver = ModelSolver(Parabel(cost=0.1))
    imputed = Auto().impute_for(solver, X, groups, np.random.default_rng(0))
    tried = [(trial["imputer"]["kind"], trial["confidence"]) for trial in imputed.details["trials"]]
    assert sorted(tried) == [
        ("baseline", "target"),
        ("baseline", "weight"),
        ("hedging", "target"),
        ("hedging", "weight"),
    ]
    assert imputed.details["chosen"]["imputer"]["kind"] == "hedging"
    assert all(trial["standard_error"] >= 0 for trial in imputed.details["trials"])


def test_sets_of_groups_of_similar_rows_are_warned_about() -> None:
    X, Y = planted(400)
    similar = ClusterGroups(depth=5, merge="set").group(X, Y, np.random.default_rng(0))
    mixed = RandomGroups(size=12, merge="set").group(X, Y, np.random.default_rng(0))
    assert has_similar_members(X, similar)
    assert not has_similar_members(X, mixed)
    assert any(
        "similar rows" in doubt for doubt in Auto().impute(X, similar, np.random.default_rng(0)).details["doubts"]
    )
