import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from xcore.components import silent
from xcore.embedding.pca import Pca
from xcore.models.negative_sampling import NegativeSampling
from xcore.report.plots import draw_race
from xcore.sampling.sampler import Tree
from xcore.studies.curves import Contender, CurveRecorder, best_of, curves_table, race_table, seconds_to_reach


def test_a_grid_is_tried_in_all_combinations_on_top_of_the_common_options() -> None:
    contender = Contender(method="nce", grid={"learning_rate": (0.1, 0.3), "regulariser": (0.0, 1e-3, 1e-2)})
    models = contender.candidates(NegativeSampling(embedding=Pca(dimensions=7), method="uniform"))
    assert len(models) == len(set(models)) == 6
    assert {model.method for model in models} == {"nce"}
    assert {model.embedding.dimensions for model in models} == {7}
    assert contender.settings_of(models[-1]) == "learning_rate 0.3, regulariser 0.01"
    assert Contender(method="uniform").candidates(NegativeSampling())[0].method == "uniform"


def test_only_methods_with_a_tree_are_raced_anew_when_the_tree_changes() -> None:
    plain, other = NegativeSampling(), NegativeSampling(tree=Tree(strength=10.0), tree_dimensions=8)
    for method, is_same in (("adversarial", False), ("nce", False), ("uniform", True), ("softmax", True)):
        contender = Contender(method=method)
        assert (contender.candidates(plain) == contender.candidates(other)) is is_same


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"learning_rate": (-1.0,)}, "learning_rate: Input should be greater than 0"),
        ({"speed": (1.0,)}, "speed: Extra inputs are not permitted"),
        ({"tree_dimensions": (4, 8)}, "tree_dimensions change the embedding or the sampler"),
    ],
)
def test_a_grid_that_cannot_be_tried_is_refused(grid: dict[str, tuple[float, ...]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Contender(method="adversarial", grid=grid)


def test_a_curve_keeps_measured_points_and_their_seconds_apart() -> None:
    curve = CurveRecorder(silent, 2)
    curve(1, 4)
    curve(2, 4, {"seconds": 1.5, "cpu_seconds": 2.0, "accuracy": 0.25, "log_likelihood": -3.0, "loss": 1.0})
    curve(
        4,
        4,
        {
            "seconds": 2.5,
            "cpu_seconds": 3.0,
            "accuracy": 0.5,
            "log_likelihood": float("nan"),
            "accuracy_uncorrected": 0.1,
        },
    )
    table = curve.table()
    assert table["epoch"].to_pylist() == [1.0, 2.0]
    assert table["loss"].to_pylist() == [1.0, None]
    assert curve.seconds == {"seconds": [1.5, 2.5], "cpu_seconds": [2.0, 3.0]}
    assert "seconds" not in table.column_names


def test_the_time_to_reach_an_accuracy_is_that_of_the_first_point_at_or_above_it() -> None:
    assert seconds_to_reach([1, 2, 3], [0.1, 0.3, 0.2], 0.2) == 2
    assert seconds_to_reach([1, 2, 3], [0.1, 0.3, 0.2], 0.4) is None
    assert best_of([0.1, float("nan"), 0.3, 0.3]) == 2


def points(accuracy: list[float]) -> pa.Table:
    n = len(accuracy)
    likelihood = [-1.0 * i for i in range(n)]
    return pa.table({"step": np.arange(n), "accuracy": accuracy, "log_likelihood": likelihood})


def test_the_table_says_when_each_final_accuracy_was_reached_by_its_method_and_by_the_first(tmp_path) -> None:
    curves = curves_table(
        ["fast", "slow", "best"],
        [points([0.3, 0.5]), points([0.1, 0.31, 0.3]), points([0.6])],
        [{"seconds": times, "cpu_seconds": times} for times in ([2.0, 4.0], [1.0, 20.0, 40.0], [9.0])],
    )
    rows = race_table(curves, {"fast": "a", "slow": "b", "best": "c"}, {"fast": 1.0, "slow": 0.0, "best": 0.0})
    fast, slow, best = rows.to_pylist()
    assert (fast["own_seconds"], fast["times_sooner"], fast["sampler_seconds"]) == (4.0, 1.0, 1.0)
    assert (slow["accuracy"], slow["own_seconds"], slow["leader_seconds"], slow["times_sooner"]) == (0.3, 20.0, 2.0, 10)
    assert (best["leader_seconds"], best["times_sooner"]) == (None, None)
    pq.write_table(curves, tmp_path / "c.parquet")
    draw_race(tmp_path / "c.parquet", tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5000
