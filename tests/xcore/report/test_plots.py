from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xcore.report.plots import draw_curves, draw_deciles, draw_simulation, draw_study
from xcore.simulation.simulations import RegressionSimulation
from xcore.studies.table import ORACLE, Cell, cells_table, summarise

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


def test_a_study_is_drawn_with_one_seed_and_with_several(tmp_path: Path) -> None:
    for seeds in ((0,), (0, 1)):
        cells, measured = [], []
        for seed in seeds:
            cells.append(Cell(grouping="", method=ORACLE, seed=seed))
            measured.append({"precision_at_1": 0.9, "precision_at_5": 0.6, "other": 1.0})
            for family, level in (("random", 2.0), ("random", 10.0), ("mixed", 0.0)):
                cells.append(Cell(grouping=f"{family}{level}", family=family, level=level, method="eagle", seed=seed))
                measured.append({"precision_at_1": 0.8 - level / 100, "precision_at_5": 0.5})
        pq.write_table(summarise(cells_table(cells, measured)), tmp_path / "s.parquet")
        draw_study(tmp_path / "s.parquet", tmp_path / "s.png")
        assert is_picture(tmp_path / "s.png")


def test_curves_are_drawn(tmp_path: Path) -> None:
    draw_curves(
        {"loss": (range(100), np.linspace(1, 0, 100).tolist()), "rows": ([1, 2], [3.0, 4.0])}, tmp_path / "c.png"
    )
    assert is_picture(tmp_path / "c.png")


def test_a_simulation_is_drawn(tmp_path: Path) -> None:
    simulation = RegressionSimulation(repetitions=2, n_rows=200, sigma2=(0.0, 1.0))
    pq.write_table(simulation.run(np.random.default_rng(0)), tmp_path / "t.parquet")
    draw_simulation(tmp_path / "t.parquet", tmp_path / "t.png")
    assert is_picture(tmp_path / "t.png")
