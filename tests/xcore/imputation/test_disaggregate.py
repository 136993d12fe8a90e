from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.components import Report
from xcore.grouping.base import Grouper
from xcore.grouping.groups import Groups, Merge
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import ClusterGroups
from xcore.imputation import disaggregate
from xcore.imputation.auto import Auto
from xcore.imputation.base import Imputer, quality_against_truth
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.heldout import HeldOutGroups
from xcore.imputation.imputed import Imputed
from xcore.imputation.random_features import random_features
from xcore.numeric.matrices import CSR, csr, normalise_rows


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def csr_of(matrix: sp.csr_array) -> CSR:
    matrix.sort_indices()
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def documents(seed: int = 0, n: int = 2000, n_labels: int = 40, d: int = 120) -> tuple[CSR, CSR]:
    """Rows of words: each of one to three labels adds words of its own, and all rows share common words."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(d, 0.05), size=n_labels)
    common = rng.dirichlet(np.full(d, 0.3))
    popularity = rng.zipf(1.6, size=n_labels).clip(max=30).astype(float)
    truth, counts = np.zeros((n, n_labels)), np.zeros((n, d))
    for row in range(n):
        own = rng.choice(n_labels, size=rng.integers(1, 4), replace=False, p=popularity / popularity.sum())
        truth[row, own] = 1
        counts[row] = rng.multinomial(30, common * 0.4 + words[own].mean(axis=0) * 0.6)
    return as_csr(np.log1p(counts)), as_csr(truth)


@pytest.mark.parametrize("grouper", [RandomGroups(size=10), RandomGroups(size=40), ClusterGroups(depth=6)])
def test_carriers_are_found_more_often_than_by_eagle_however_tuned(grouper: Grouper) -> None:
    X, Y = documents()
    groups = grouper.group(X, Y, np.random.default_rng(0))
    ours = quality_against_truth(Disaggregate().impute(X, groups, np.random.default_rng(0)), Y)
    for centre in (False, True):
        for iterations in (0, 20):
            eagle = Eagle(iterations=iterations, centre=centre, assign="top_m")
            theirs = quality_against_truth(eagle.impute(X, groups, np.random.default_rng(0)), Y)
            assert ours["precision"] > theirs["precision"]


@pytest.mark.parametrize(("size", "error"), [(2, 0.05), (5, 0.05), (20, 0.2)])
def test_confidence_is_about_the_share_of_positives_that_are_true(size: int, error: float) -> None:
    X, Y = documents(seed=1)
    groups = RandomGroups(size=size).group(X, Y, np.random.default_rng(0))
    imputed = Disaggregate().impute(X, groups, np.random.default_rng(0))
    assert quality_against_truth(imputed, Y)["calibration_error"] < error


def planted(noise: float) -> tuple[CSR, CSR]:
    """Rows with one of twenty labels each: its direction, and noise of so many times its length."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, 20, 1500)
    directions = rng.standard_normal((20, 60)) / np.sqrt(60)
    return as_csr(directions[own] + noise * rng.standard_normal((1500, 60)) / np.sqrt(60)), as_csr(np.eye(20)[own])


def test_posteriors_become_as_sharp_as_the_noise_of_the_features_allows() -> None:
    sharpness, penalty, confidence = [], [], []
    for noise in (0.5, 2.0, 8.0, 1000.0):
        X, Y = planted(noise)
        groups = RandomGroups(size=10).group(X, Y, np.random.default_rng(0))
        imputed = Disaggregate().impute(X, groups, np.random.default_rng(0))
        sharpness.append(imputed.details["sharpness"])
        penalty.append(imputed.details["penalty"])
        confidence.append(imputed.details["mean_confidence"])
        # Of 1,500 rows some 15 pooled pairs tell the exponent: where features say little, it is uncertain.
        assert quality_against_truth(imputed, Y)["calibration_error"] < 0.1
        soft = Disaggregate(assign="soft").impute(X, groups, np.random.default_rng(0))
        assert quality_against_truth(soft, Y)["calibration_error"] < 0.03
    assert sharpness[0] >= sharpness[1] > sharpness[3]
    assert sharpness[3] < 0.3, "features that say nothing leave chances near the group's share"
    assert penalty[0] < penalty[1] < penalty[2]
    assert confidence[0] > confidence[1] > confidence[2]
    assert confidence[0] > 0.9
    assert confidence[2] < 0.5


def test_soft_assignment_keeps_every_member_worth_keeping_and_the_group_adds_up() -> None:
    X, Y = documents(n=400)
    groups = RandomGroups(size=8).group(X, Y, np.random.default_rng(0))
    chances = Disaggregate(assign="soft").impute(X, groups, np.random.default_rng(0))
    chosen = Disaggregate().impute(X, groups, np.random.default_rng(0))
    assert (chances.reading, chosen.reading) == ("target", "weight")
    soft, hard = chances.Y, chosen.Y
    np.testing.assert_allclose(soft.toarray()[hard.toarray() > 0], hard.data)
    np.testing.assert_allclose((groups.members @ soft).toarray(), groups.labels.toarray(), atol=0.08)
    assert soft.data.min() < 0.05


def test_held_out_groups_say_how_far_the_imputation_can_be_trusted() -> None:
    X, Y = documents()
    groups = RandomGroups(size=10).group(X, Y, np.random.default_rng(0))
    told = Disaggregate().impute(X, groups, np.random.default_rng(0)).details["held_out"]
    assert told["groups"] == 40
    assert told["ranking"] > 0.8
    assert 0 < told["ranking_error"] < 0.1


def test_the_default_assignment_depends_on_what_is_known() -> None:
    X, Y = documents(n=400)
    merges: tuple[Merge, Merge] = ("list", "set")
    counted, sets = (RandomGroups(size=8, merge=merge).group(X, Y, np.random.default_rng(0)) for merge in merges)
    assert Disaggregate().impute(X, counted, np.random.default_rng(0)).details["assignment"] == "hard"
    assert Disaggregate().impute(X, sets, np.random.default_rng(0)).details["assignment"] == "soft"
    settings = [setting for setting, _ in Disaggregate().impute_each(X, sets, np.random.default_rng(0))]
    assert settings == [Disaggregate(assign="hard"), Disaggregate(assign="soft")]


@pytest.mark.parametrize("shortcut", ["few carriers", "few groups", "small changes"])
@pytest.mark.parametrize("merge", ["list", "set"])
def test_shortcuts_impute_what_an_exact_regression_in_every_turn_does(
    monkeypatch: pytest.MonkeyPatch, shortcut: str, merge: Merge
) -> None:
    X, Y = documents(n=400)  # so few features that sketches are exact
    groups = RandomGroups(size=5, merge=merge).group(X, Y, np.random.default_rng(0))
    imputed = []
    for taken in (shortcut, None):
        monkeypatch.setattr(disaggregate, "_FEW_CARRIERS", 10**9 if taken == "few carriers" else 0)
        monkeypatch.setattr(disaggregate, "_FEW_GROUPS", 10**9 if taken == "few groups" else -1)
        reach = np.inf if taken == "small changes" else 0.0
        monkeypatch.setattr(disaggregate, "_reach", lambda system, sketch, reach=reach: reach)
        imputed.append(Disaggregate().impute(X, groups, np.random.default_rng(0)).Y.toarray())
    differs = np.abs(imputed[0] - imputed[1]) > 0.02
    assert differs.mean() < 0.001, "only members that are nearly equal may change places"


def test_every_pair_yields_as_many_members_as_it_counts() -> None:
    X, Y = documents(n=300)
    groups = ClusterGroups(depth=3).group(X, Y, np.random.default_rng(0))
    imputed = Disaggregate().impute(X, groups, np.random.default_rng(0)).positives(weighted=False)
    np.testing.assert_array_equal((groups.members @ imputed).toarray(), groups.labels.toarray())


@pytest.mark.parametrize("merge", ["list", "set"])
def test_unknown_counts_cost_some_quality_but_not_all(merge: Merge) -> None:
    X, Y = documents()
    groups = RandomGroups(size=10, merge=merge).group(X, Y, np.random.default_rng(0))
    imputed = Disaggregate(assign="hard").impute(X, groups, np.random.default_rng(0))
    quality = quality_against_truth(imputed, Y)
    assert quality["precision"] > 0.7
    assert quality["recall"] > 0.6


@pytest.mark.parametrize("grouper", [RandomGroups(size=5, merge="set"), RandomGroups(size=40, merge="set")])
def test_about_as_many_members_as_carry_a_label_get_it_where_counts_are_unknown(grouper: Grouper) -> None:
    X, Y = documents()
    groups = grouper.group(X, Y, np.random.default_rng(0))
    imputed = Disaggregate(assign="hard").impute(X, groups, np.random.default_rng(0))
    assert imputed.Y.nnz == pytest.approx(Y.nnz, rel=0.2)
    assert imputed.Y.sum() == pytest.approx(quality_against_truth(imputed, Y)["precision"] * imputed.Y.nnz, rel=0.2)


def test_more_features_than_can_be_modelled_jointly_still_find_the_carriers() -> None:
    X, Y = documents()
    groups = RandomGroups(size=10).group(X, Y, np.random.default_rng(0))
    few, all_of_them = (
        quality_against_truth(Disaggregate(joint_features=h).impute(X, groups, np.random.default_rng(0)), Y)[
            "precision"
        ]
        for h in (30, 1000)
    )
    assert all_of_them >= few > all_of_them - 0.15


def test_rows_in_no_group_do_not_count_as_negatives() -> None:
    X, Y = documents()
    groups = RandomGroups(size=10).group(X, Y, np.random.default_rng(0))
    half = groups.take(np.arange(100))
    rows = np.unique(half.members.indices)
    alone = Groups(as_csr(half.members.toarray()[:, rows]), half.labels)
    among_others = Disaggregate().impute(X, half, np.random.default_rng(0)).Y.toarray()
    among_themselves = Disaggregate().impute(as_csr(X.toarray()[rows]), alone, np.random.default_rng(0)).Y.toarray()
    np.testing.assert_allclose(among_others[rows], among_themselves, atol=1e-3)


def test_held_out_groups_rank_imputers_as_the_truth_does() -> None:
    X, Y = documents()
    groups = RandomGroups(size=20).group(X, Y, np.random.default_rng(0))
    held_out = HeldOutGroups(X, groups, np.random.default_rng(0), share=0.3)
    plain, ours = (held_out.explained(i, np.random.default_rng(0)) for i in (Eagle(iterations=0), Disaggregate()))
    assert ours.quality()["group_agreement"] > plain.quality()["group_agreement"] + 0.05
    assert 0 < ours.quality()["group_precision"] <= 1
    assert ours.surely_better(plain)
    assert not plain.surely_better(ours)


def quarters() -> tuple[CSR, CSR]:
    """Points of the plane. Opposite quarters have the same label, which no linear function of the features tells."""
    points = np.random.default_rng(0).uniform(-1, 1, (1500, 2))
    sides = np.concatenate([np.maximum(points, 0), np.maximum(-points, 0)], axis=1)
    own = (points[:, 0] > 0) ^ (points[:, 1] > 0)
    return as_csr(sides), as_csr(np.eye(2)[own.astype(np.int64)])


@pytest.mark.parametrize("size", [5, 20])
def test_random_features_find_what_is_not_linear_in_the_features(size: int) -> None:
    X, Y = quarters()
    groups = RandomGroups(size=size).group(X, Y, np.random.default_rng(0))
    own, random = (
        Disaggregate(random_features=count).impute(X, groups, np.random.default_rng(0)) for count in (0, 100)
    )
    assert quality_against_truth(own, Y)["precision"] < 0.7
    assert quality_against_truth(random, Y)["precision"] > 0.95


def test_products_of_random_features_are_a_kernel_of_the_distance() -> None:
    X, _ = quarters()
    found = random_features(X, 4000, np.random.default_rng(0))[:50].toarray()
    rows = normalise_rows(X).toarray()
    squares = np.square(rows[:50, None] - rows[None, :50]).sum(axis=2)
    median = np.median(np.sqrt(np.square(rows[:, None] - rows[None, ::7]).sum(axis=2)))
    np.testing.assert_allclose(found @ found.T, np.exp(-squares / (2 * (median / 2) ** 2)), atol=0.1)


def test_random_features_of_no_rows_and_of_equal_rows_are_finite() -> None:
    for rows in (np.zeros((0, 3)), np.ones((4, 3)), np.zeros((4, 3))):
        found = random_features(as_csr(rows), 7, np.random.default_rng(0))
        assert found.shape == (len(rows), 7)
        assert np.isfinite(found.data).all()


@pytest.mark.parametrize("merge", ["list", "set"])
def test_groups_above_4096_rows_tell_nothing_and_stop_nothing(merge: Merge) -> None:
    rows = 5000
    X = as_csr(np.random.default_rng(0).random((2 * rows, 3)))
    members = csr(np.ones(2 * rows), np.arange(2 * rows), np.array([0, rows, 2 * rows]), 2 * rows)
    groups = Groups(members, as_csr([[2, 0], [1, 3]]), merge=merge)
    Y = Disaggregate().impute(X, groups, np.random.default_rng(0)).Y
    assert (Y[:rows].sum(axis=0) > 0).tolist() == [True, False]


def test_auto_chooses_by_held_out_groups_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    X, Y = documents()
    groups = RandomGroups(size=20).group(X, Y, np.random.default_rng(0))
    with caplog.at_level("INFO", logger="xcore.imputation.auto"):
        imputed = Auto(share=0.3).impute(X, groups, np.random.default_rng(0))
    assert imputed.details["chosen"]["imputer"]["kind"] == "disaggregate"
    assert len(imputed.details["trials"]) == 4
    assert imputed.details["reason"] in caplog.text
    assert quality_against_truth(imputed, Y)["precision"] > 0.8


def test_both_assignments_come_from_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = documents(n=400)
    groups = RandomGroups(size=8).group(X, Y, np.random.default_rng(0))
    runs, rehearse = [], disaggregate.rehearse
    monkeypatch.setattr(disaggregate, "rehearse", lambda *inputs: runs.append(1) or rehearse(*inputs))
    found = Disaggregate(assign="auto").impute_each(X, groups, np.random.default_rng(0))
    assert len(runs) == 1
    for (setting, imputed), assign in zip(found, ("soft", "hard"), strict=True):
        assert setting == Disaggregate(assign=assign)
        alone = setting.impute(X, groups, np.random.default_rng(0))
        np.testing.assert_array_equal(imputed.Y.toarray(), alone.Y.toarray())
        assert imputed.reading == alone.reading


def test_auto_leaves_labels_to_all_members_where_all_carry_them() -> None:
    X, _ = documents(n=400)
    groups = ClusterGroups(depth=5).group(X, as_csr(np.ones((400, 1))), np.random.default_rng(0))
    own = np.zeros((400, 32))
    own[groups.members.indices, np.repeat(np.arange(32), groups.sizes)] = 1
    shared = Groups(groups.members, (groups.members @ as_csr(own)).tocsr())
    imputed = Auto(share=0.3).impute(X, shared, np.random.default_rng(0))
    np.testing.assert_array_equal(imputed.Y.toarray() > 0, own > 0)


class Guesses(Imputer):
    """Two labels for every row, whatever its group has."""

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        labels = rng.random((groups.n_rows, groups.n_labels)).argsort(axis=1)
        return Imputed(as_csr(labels < 2))


def test_guesses_explain_nothing_of_the_sets_of_large_groups() -> None:
    """They name so many labels that a third of a set is among them, as of any other."""
    X, Y = documents()
    groups = RandomGroups(size=20, merge="set").group(X, Y, np.random.default_rng(0))
    held_out = HeldOutGroups(X, groups, np.random.default_rng(0), share=0.3)
    guessed, found = (held_out.explained(imputer, np.random.default_rng(0)) for imputer in (Guesses(), Disaggregate()))
    assert guessed.both.sum() > 0.3 * guessed.n_true
    assert abs(guessed.quality()["group_agreement"]) < 0.05
    assert found.quality()["group_agreement"] > 0.15
    assert found.surely_better(guessed)
    assert not guessed.surely_better(found)
