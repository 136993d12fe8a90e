import pyarrow as pa
import pytest

from xcore.components import silent
from xcore.models.negative_sampling import NegativeSampling
from xcore.sampling.sampler import Tree
from xcore.studies.curve_table import final_values, points_table, seconds_to_reach
from xcore.studies.curves import CurveRecorder, best_of, without_unused_tree
from xcore.studies.design import Cell, Level


@pytest.mark.parametrize(("method", "is_same"), [("adversarial", False), ("nce", False), ("uniform", True)])
def test_models_that_differ_in_a_tree_that_they_do_not_use_are_the_same(method: str, is_same: bool) -> None:
    plain = NegativeSampling.model_validate({"method": method})
    other = plain.model_copy(update={"tree": Tree(strength=10.0), "tree_dimensions": 8})
    assert (without_unused_tree(plain) == without_unused_tree(other)) is is_same


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
    return pa.table({"accuracy": accuracy, "log_likelihood": [-1.0 * i for i in range(len(accuracy))]})


def test_final_values_say_when_an_accuracy_was_reached_by_the_curve_and_by_the_reference() -> None:
    reference = ([2.0, 4.0], [0.3, 0.5])
    times = {"seconds": [1.0, 15.0, 30.0], "cpu_seconds": [1.0, 20.0, 40.0]}
    slow = final_values(points([0.1, 0.31, 0.3]), times, 0.5, reference)
    assert slow == {
        "accuracy": 0.3,
        "log_likelihood": -2.0,
        "seconds": 30.0,
        "cpu_seconds": 40.0,
        "sampler_seconds": 0.5,
        "own_seconds": 20.0,
        "reference_seconds": 2.0,
        "times_sooner": 10.0,
    }
    best = final_values(points([0.6]), {"seconds": [9.0], "cpu_seconds": [9.0]}, 0.0, reference)
    assert "reference_seconds" not in best  # never
    assert "times_sooner" not in final_values(points([0.6]), {"seconds": [9.0], "cpu_seconds": [9.0]}, 0.0, None)


def test_all_points_of_all_curves_are_in_one_table() -> None:
    cells = [Cell(levels=(Level(label="a"),), seed=0), Cell(levels=(Level(label="b"),), seed=1)]
    times = [{"seconds": [1.0, 2.0], "cpu_seconds": [2.0, 4.0]}, {"seconds": [3.0], "cpu_seconds": [3.0]}]
    table = points_table(["model.method"], cells, [points([0.1, 0.2]), points([0.3])], times)
    assert table["model.method"].to_pylist() == ["a", "a", "b"]
    assert table["seed"].to_pylist() == [0, 0, 1]
    assert table["cpu_seconds"].to_pylist() == [2.0, 4.0, 3.0]
    assert table["accuracy"].to_pylist() == [0.1, 0.2, 0.3]
