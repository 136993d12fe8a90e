from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xcore.report.plots import draw_curves, draw_deciles, draw_simulation
from xcore.report.study_plots import draw_lines, draw_study
from xcore.simulation.simulations import RegressionSimulation
from xcore.studies.curve_table import points_table
from xcore.studies.design import Cell, Level, StudyDesign
from xcore.studies.table import Measured, summarise

PNG = b"\x89PNG\r\n\x1a\n"


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(PNG) and path.stat().st_size > 5000


def test_deciles_are_drawn_even_where_a_rate_is_unknown(tmp_path: Path) -> None:
    table = pa.table(
        {
            "decile": [1, 2],
            "min_train_count": [5, 1],
            "max_train_count": [9, 4],
            "precision_at_1": [0.5, 0.1],
            "recall_at_1": [0.4, None],
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    draw_deciles(tmp_path / "d.parquet", tmp_path / "d.png")
    assert is_picture(tmp_path / "d.png")


def write_study(folder: Path, seeds: tuple[int, ...], plot: str) -> None:
    levels = {
        ("none", "any"): Level(label="none"),
        ("random 2", "eagle"): Level(label="random 2", family="random", number=2, axis="rows in a group"),
        ("random 50", "eagle"): Level(label="random 50", family="random", number=50, axis="rows in a group"),
        ("mixed 0", "eagle"): Level(label="mixed 0", family="mixed", number=0),
    }
    cells, measured = [], []
    for number, ((_, imputer), level) in enumerate(levels.items()):
        for place, seed in enumerate(seeds):
            cells.append(Cell(levels=(level, Level(label=imputer)), seed=seed, reference=place))
            metrics = {"precision_at_1": 0.9 - number / 10, "precision_at_5": 0.6, "other": 1.0}
            measured.append(Measured(metrics, {"precision_at_1": (0.1, 0.95)}))
    design = StudyDesign.model_validate({"factors": ("grouping", "imputer"), "cells": cells, "plot": plot})
    design.save(folder)
    pq.write_table(summarise(design.factors, cells, measured), folder / "summary.parquet")


@pytest.mark.parametrize("plot", ["bars", "lines"])
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_study_is_drawn_with_one_seed_and_with_several(tmp_path: Path, seeds: tuple[int, ...], plot: str) -> None:
    write_study(tmp_path, seeds, plot)
    draw_study(tmp_path, tmp_path / "s.png")
    assert is_picture(tmp_path / "s.png")


@pytest.mark.filterwarnings("error")
def test_long_names_leave_room_for_the_bars(tmp_path: Path) -> None:
    cell = Cell(levels=(Level(label="network(" + "a long option=1, " * 12 + ")"),), seed=0)
    design = StudyDesign(factors=("model",), cells=(cell,), plot="bars")
    design.save(tmp_path)
    pq.write_table(
        summarise(design.factors, [cell], [Measured({"precision_at_1": 0.5}, {})]), tmp_path / "summary.parquet"
    )
    draw_study(tmp_path, tmp_path / "s.png")
    assert is_picture(tmp_path / "s.png")


def test_lines_have_an_axis_of_percent_lost_against_the_reference(tmp_path: Path) -> None:
    write_study(tmp_path, (0,), "lines")
    figure = draw_lines(StudyDesign.load(tmp_path), tmp_path)
    first = figure.axes[0]
    (lost,) = first.child_axes
    figure.savefig(tmp_path / "s.png")
    assert lost.get_ylabel() == "lost, %"
    assert sorted(lost.get_ylim()) == pytest.approx(sorted(100 * (1 - value / 0.9) for value in first.get_ylim()))


def test_nothing_is_drawn_for_a_study_that_asks_for_no_plot(tmp_path: Path) -> None:
    write_study(tmp_path, (0,), "none")
    draw_study(tmp_path, tmp_path / "s.png")
    assert not (tmp_path / "s.png").exists()


def test_learning_curves_of_a_study_are_drawn_even_where_one_diverges(tmp_path: Path) -> None:
    cells = [Cell(levels=(Level(label=name),), seed=seed) for name in ("a", "b") for seed in (0, 1)]
    curve = pa.table({"accuracy": [0.1, 0.5], "log_likelihood": [-9.0, -2.0]})
    diverged = pa.table({"accuracy": [0.1, 0.5], "log_likelihood": [-9.0, -1e9]})
    times = {"seconds": [1.0, 2.0], "cpu_seconds": [1.0, 2.0]}
    StudyDesign.model_validate({"factors": ("f",), "cells": cells, "plot": "curves"}).save(tmp_path)
    points = points_table(("f",), cells, [curve, curve, curve, diverged], [times] * 4)
    pq.write_table(points, tmp_path / "curves.parquet")
    draw_study(tmp_path, tmp_path / "c.png")
    assert is_picture(tmp_path / "c.png")


def test_curves_are_drawn(tmp_path: Path) -> None:
    falling = list(enumerate(np.linspace(1, 0, 100).tolist()))
    draw_curves({"loss": falling, "rows": [(1, 3.0), (2, 4.0)]}, tmp_path / "c.png")
    assert is_picture(tmp_path / "c.png")


def test_a_simulation_is_drawn(tmp_path: Path) -> None:
    simulation = RegressionSimulation(repetitions=2, n_rows=200, sigma2=(0.0, 1.0))
    pq.write_table(simulation.run(np.random.default_rng(0)), tmp_path / "t.parquet")
    draw_simulation(tmp_path / "t.parquet", tmp_path / "t.png")
    assert is_picture(tmp_path / "t.png")
