import math

import pytest

from xcore.components import label_of
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import MixedGroups
from xcore.heads.cascade import MultiHeadCascade
from xcore.imputation.eagle import Eagle
from xcore.models.ensemble import Ensemble, Member
from xcore.models.negative_sampling import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.parabel import Parabel
from xcore.studies.design import Cell, Level, StudyDesign
from xcore.studies.table import Measured, cells_table, chosen_metrics, summarise

FACTORS = ("grouping", "imputer")


def cell(grouping: str, imputer: str, seed: int, reference: int | None = None) -> Cell:
    return Cell(levels=(Level(label=grouping), Level(label=imputer)), seed=seed, reference=reference)


def test_a_component_is_named_by_what_differs_from_its_defaults() -> None:
    assert label_of(Eagle()) == "eagle"
    assert label_of(Eagle(iterations=0)) == "eagle(iterations=0)"
    assert label_of(RandomGroups(size=10)) == "random(size=10)"
    assert label_of(MixedGroups(depth=8, heterogeneity=0.25)) == "mixed(depth=8, heterogeneity=0.25)"
    assert label_of(NegativeSampling(method="nce")) == "negative-sampling(method=nce)"
    assert label_of(NeuralNetwork(head=MultiHeadCascade(lengths=(8, 5)))) == "network(head=mhc(lengths=[8, 5]))"
    members = (Member(model=Parabel(), copies=3), Member(model=Parabel(n_trees=2)))
    assert label_of(Ensemble(members=members)) == (
        "ensemble(members=[(model=parabel, copies=3), (model=parabel(n_trees=2))])"
    )


def test_the_summary_has_means_deviations_intervals_and_losses_over_seeds() -> None:
    cells = [cell("none", "any", 0, 0), cell("none", "any", 1, 1), cell("g", "eagle", 0, 0), cell("g", "eagle", 1, 1)]
    values = [{"p": 0.8}, {"p": 1.0}, {"p": 0.4, "extra": 1.0}, {"p": 0.75}]
    rows = summarise(FACTORS, cells, [Measured(each) for each in values]).to_pylist()
    by_name = {(row["imputer"], row["metric"]): row for row in rows}
    assert set(by_name) == {("any", "p"), ("eagle", "p"), ("eagle", "extra")}
    eagle = by_name["eagle", "p"]
    assert eagle["n_seeds"] == 2
    assert eagle["mean"] == pytest.approx(0.575)
    assert eagle["std"] == pytest.approx(0.35 / 2**0.5)
    half = 12.7062047 * 0.35 / 2  # Student's t with one degree of freedom
    assert (eagle["low"], eagle["high"]) == pytest.approx((0.575 - half, 0.575 + half))
    assert eagle["lost_percent"] == pytest.approx((50 + 25) / 2)
    assert by_name["any", "p"]["lost_percent"] == 0
    extra = by_name["eagle", "extra"]
    assert [extra[name] for name in ("std", "low", "high", "lost_percent")] == [None] * 4


def test_one_seed_has_the_interval_of_its_own_bootstrap() -> None:
    (row,) = summarise(
        ("a",), [Cell(levels=(Level(label="x"),), seed=0)], [Measured({"p": 0.5}, {"p": (0.4, 0.7)})]
    ).to_pylist()
    assert (row["std"], row["low"], row["high"]) == (None, 0.4, 0.7)


def test_values_that_are_not_numbers_are_left_out_and_no_loss_is_against_zero() -> None:
    cells = [cell("none", "any", 0, 0), cell("g", "eagle", 0, 0)]
    rows = summarise(FACTORS, cells, [Measured({"p": 0.0, "q": math.nan}), Measured({"p": 0.5, "q": 1.0})]).to_pylist()
    assert [(row["imputer"], row["metric"], row["lost_percent"]) for row in rows] == [
        ("any", "p", None),
        ("eagle", "p", None),
        ("eagle", "q", None),
    ]


def test_the_table_of_cells_has_a_column_for_each_factor_and_metric() -> None:
    cells = [cell("none", "any", 0), cell("g", "eagle", 3)]
    table = cells_table(FACTORS, cells, [Measured({"p": 0.5}), Measured({"q": 0.1}, note="rate 1")])
    assert table.to_pylist() == [
        {"grouping": "none", "imputer": "any", "seed": 0, "note": "", "p": 0.5, "q": None},
        {"grouping": "g", "imputer": "eagle", "seed": 3, "note": "rate 1", "p": None, "q": 0.1},
    ]


def test_metrics_are_chosen_by_patterns_in_the_order_of_these() -> None:
    known = ["ndcg_at_1", "precision_at_1", "precision_at_5"]
    assert chosen_metrics(known, ["precision_at_*", "ndcg_at_1", "precision_at_1"]) == [*known[1:], known[0]]


def test_a_design_is_read_as_it_was_written(tmp_path) -> None:
    levels = (Level(label="random 2", family="random", number=2.0, axis="rows in a group"), Level(label="any"))
    design = StudyDesign(factors=FACTORS, cells=(Cell(levels=levels, seed=0, tuned=("rate",)),), plot="lines")
    design.save(tmp_path)
    assert StudyDesign.load(tmp_path) == design
