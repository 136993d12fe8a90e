import pytest

from xcore.components import label_of
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import MixedGroups
from xcore.imputation.eagle import Eagle
from xcore.studies.table import ORACLE, Cell, cells_table, summarise


def cell(method: str, seed: int, grouping: str = "random(size=10)") -> Cell:
    return Cell(grouping=grouping, family="random", level=10, method=method, seed=seed)


def test_a_component_is_named_by_what_differs_from_its_defaults() -> None:
    assert label_of(Eagle()) == "eagle"
    assert label_of(Eagle(iterations=0)) == "eagle(iterations=0)"
    assert label_of(RandomGroups(size=10)) == "random(size=10)"
    assert label_of(MixedGroups(depth=8, heterogeneity=0.25)) == "mixed(depth=8, heterogeneity=0.25)"


def test_the_summary_has_means_deviations_and_losses_over_seeds() -> None:
    cells = [cell(ORACLE, seed, "") for seed in (0, 1)] + [cell("eagle", seed) for seed in (0, 1)]
    measured = [{"p": 0.8}, {"p": 1.0}, {"p": 0.4, "extra": 1.0}, {"p": 0.75}]
    rows = {(row["method"], row["metric"]): row for row in summarise(cells_table(cells, measured)).to_pylist()}
    assert set(rows) == {(ORACLE, "p"), ("eagle", "p"), ("eagle", "extra")}
    eagle = rows["eagle", "p"]
    assert eagle["n_seeds"] == 2
    assert eagle["mean"] == pytest.approx(0.575)
    assert eagle["std"] == pytest.approx(0.35 / 2**0.5)
    assert eagle["lost_percent"] == pytest.approx((50 + 25) / 2)
    assert rows[ORACLE, "p"]["lost_percent"] == 0
    assert rows["eagle", "extra"]["std"] is None
    assert rows["eagle", "extra"]["lost_percent"] is None
