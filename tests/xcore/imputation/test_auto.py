"""How imputers are judged and chosen: by groups that they have not seen, and not by rows that explain themselves."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.components import Report
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.auto import Auto, Trial, choose
from xcore.imputation.base import Imputer, quality_against_truth
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.heldout import Explained, HeldOutGroups, held_out_quality
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, csr

N_ROWS, N_LABELS, SIZE = 600, 15, 10


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def planted() -> tuple[CSR, CSR, Groups]:
    rng = np.random.default_rng(0)
    label = rng.integers(N_LABELS, size=N_ROWS)
    X = as_csr(rng.random((N_LABELS, 20))[label] + 0.2 * rng.random((N_ROWS, 20)))
    Y = as_csr(np.eye(N_LABELS)[label])
    return X, Y, RandomGroups(size=SIZE).group(X, Y, rng)


class Shuffled(Imputer):
    """Labels of the groups, given to members at random."""

    kind: Literal["shuffled"] = "shuffled"

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        Y = np.zeros((groups.n_rows, groups.n_labels))
        for group in range(groups.n_groups):
            members, labels = groups.members[[group]].indices, groups.labels[[group]]
            Y[rng.permutation(members)[: labels.nnz], labels.indices] = 1
        return Imputed(as_csr(Y))


class Knowing(Imputer):
    """The truth, and the groups that it was asked about."""

    kind: Literal["knowing"] = "knowing"
    truth: ClassVar[CSR]
    asked: ClassVar[list[Groups]]

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        self.asked.append(groups)
        known = np.isin(np.arange(groups.n_rows), groups.members.indices)
        return Imputed(as_csr(self.truth.toarray() * known[:, None]))


@pytest.mark.parametrize("candidates", [[Knowing(), Shuffled()], [Shuffled(), Knowing()]])
def test_auto_uses_the_imputer_that_explains_the_held_out_groups(
    candidates: list[Imputer], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y, groups = planted()
    Knowing.truth, Knowing.asked = Y, []
    monkeypatch.setattr(Auto, "_candidates", lambda self, groups: candidates)
    imputed = Auto(share=0.3).impute(X, groups, np.random.default_rng(0))
    assert imputed.details["chosen"]["imputer"]["kind"] == "knowing"
    np.testing.assert_array_equal(imputed.Y.toarray(), Y.toarray())
    *trials, final = Knowing.asked
    assert all(trial.n_groups == 0.7 * groups.n_groups for trial in trials)
    assert final.n_groups == groups.n_groups


def test_auto_stays_with_its_last_candidate_unless_another_is_surely_better(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, groups = planted()
    n_last = 0
    for seed in range(8):
        monkeypatch.setattr(
            Auto, "_candidates", lambda self, groups: [Shuffled(), Disaggregate(rounds=1), Disaggregate()]
        )
        imputed = Auto(share=0.3).impute(X, groups, np.random.default_rng(seed))
        n_last += imputed.details["chosen"]["imputer"]["rounds"] == Disaggregate().rounds
    assert n_last == 8


def test_trials_of_large_data_learn_from_a_part_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, groups = planted()
    seen: list[int] = []

    class Counting(Shuffled):
        def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
            seen.append(X.shape[0])
            return super()._impute(X, groups, rng, report)

    monkeypatch.setattr(Auto, "_candidates", lambda self, groups: [Shuffled(), Counting()])
    Auto(trial_rows=200).impute(X, groups, np.random.default_rng(0))
    assert seen == [200, 200, 200, N_ROWS], "each third of the groups is held out once"


def test_held_out_groups_are_not_shown_to_the_imputer() -> None:
    X, Y, groups = planted()
    Knowing.truth, Knowing.asked = Y, []
    held_out = HeldOutGroups(X, groups, np.random.default_rng(0), share=0.25)
    explained = held_out.explained(Knowing(), np.random.default_rng(0))
    (shown,) = Knowing.asked
    n_hidden = groups.n_groups - shown.n_groups
    assert n_hidden == 0.25 * groups.n_groups
    assert explained.n_true == N_ROWS - len(shown.members.indices)


def test_every_group_is_held_out_in_exactly_one_fold() -> None:
    X, Y, groups = planted()
    Knowing.truth, Knowing.asked = Y, []
    for fold in range(4):
        HeldOutGroups(X, groups, np.random.default_rng(0), share=0.25, fold=fold).explained(
            Knowing(), np.random.default_rng(0)
        )
    shown = [set(seen.members.indices.tolist()) for seen in Knowing.asked]
    assert [len(seen) for seen in shown] == [0.75 * N_ROWS] * 4
    np.testing.assert_array_equal(np.bincount([row for seen in shown for row in seen]), 3)


def test_held_out_groups_tell_a_good_imputer_from_a_bad_one_without_any_truth() -> None:
    X, Y, groups = planted()
    Knowing.truth, Knowing.asked = Y, []
    good, bad = (held_out_quality(one, X, groups, {}, np.random.default_rng(0)) for one in (Knowing(), Shuffled()))
    (shown,) = Knowing.asked
    assert shown.n_groups == 0.8 * groups.n_groups
    assert good["estimated_precision_at_1"] == pytest.approx(1, abs=0.1)
    error = np.hypot(good["estimated_precision_at_1_error"], bad["estimated_precision_at_1_error"])
    assert 0 < 3 * error < good["estimated_precision_at_1"] - bad["estimated_precision_at_1"]
    assert good["group_agreement"] > bad["group_agreement"]


def test_an_estimate_that_similar_rows_make_impossible_is_not_told() -> None:
    X, Y, _ = planted()
    order = np.argsort(Y.indices, kind="stable")  # all members of a group have the same label
    members = csr(np.ones(N_ROWS), order, np.arange(0, N_ROWS + 1, SIZE), N_ROWS)
    labels = sp.csr_array(members @ Y)
    alike = Groups(members, csr(labels.data, labels.indices, labels.indptr, N_LABELS), "list")
    Knowing.truth, Knowing.asked = Y, []
    found = HeldOutGroups(X, alike, np.random.default_rng(0)).explained(Knowing(), np.random.default_rng(0))
    assert found.quality()["estimated_precision_at_1"] > 3
    told = held_out_quality(Knowing(), X, alike, {}, np.random.default_rng(0))
    assert told.keys() == {"group_agreement", "group_precision"}
    chosen = Auto().impute(X, alike, np.random.default_rng(0)).details
    assert "those above 1 only rank, since groups hold similar rows" in chosen["reason"]
    assert held_out_quality(Auto(), X, alike, chosen, np.random.default_rng(0)).keys() == told.keys()


def test_groups_of_one_have_nothing_to_hold_out() -> None:
    X, Y, _ = planted()
    alone = RandomGroups(size=1).group(X, Y, np.random.default_rng(0))
    assert held_out_quality(Shuffled(), X, alone, {}, np.random.default_rng(0)) == {}


@pytest.mark.parametrize("merge", ["list", "set"])
def test_features_that_say_nothing_make_no_row_confident(merge: Literal["list", "set"]) -> None:
    """A regression fits its own targets: without leaving a row's group out, noise would confirm any first guess."""
    rng = np.random.default_rng(0)
    X, Y = as_csr(rng.normal(size=(400, 300))), as_csr(np.eye(8)[rng.integers(8, size=400)])
    groups = RandomGroups(size=5, merge=merge).group(X, Y, rng)
    quality = quality_against_truth(Disaggregate().impute(X, groups, np.random.default_rng(0)), Y)
    assert quality["calibration_error"] < 0.2


def explained(right: list[float]) -> Explained:
    nothing = np.zeros(len(right))
    return Explained(nothing, nothing, 100.0, 100.0, np.array(right), np.full(len(right), 10))


def test_a_lead_within_two_standard_errors_is_not_enough_to_leave_the_last_candidate() -> None:
    last, noisy, better = explained([5] * 8), explained([9, 3, 8, 4, 5, 5, 5, 5]), explained([7] * 8)
    assert not noisy.surely_better(last)
    assert better.surely_better(last)
    imputers = (Shuffled(), Knowing(), Disaggregate())

    def chosen(*found: Explained) -> Explained:
        trials = [Trial(imputer, "weight", one) for imputer, one in zip(imputers[-len(found) :], found, strict=True)]
        return choose(trials, trials[-1]).explained

    assert chosen(noisy, last) is last
    assert chosen(noisy, better, last) is better
    best = explained([9] * 8)
    assert chosen(best, better, last) is best
