"""Quality of imputed labels by the size of the groups: against counts made by hand."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.report.group_sizes import group_sizes_table

TRUTH = [[0], [1], [0, 1], [1], [0], [2]]
IMPUTED = [[0], [0], [0], [1, 2], [0], []]


def table_of(tmp_path: Path, members: list[list[int]]) -> str | None:
    incidence = sp.lil_array((len(members), 6), dtype=np.float32)
    for group, rows in enumerate(members):
        incidence[group, rows] = 1
    labels = sp.csr_array(np.ones((len(members), 3), np.float32))
    Groups(sp.csr_array(incidence), labels).save(tmp_path)
    for name, lists in {"truth": TRUTH, "labels": IMPUTED}.items():
        pq.write_table(pa.table({"labels": pa.array(lists, pa.list_(pa.int32()))}), tmp_path / f"{name}.parquet")
    made = group_sizes_table(tmp_path, tmp_path, tmp_path / "truth.parquet")
    return None if made is None else re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", str(made)))


def test_precision_and_recall_are_counted_in_bands_of_the_largest_group_of_a_row(tmp_path: Path) -> None:
    page = table_of(tmp_path, [[0], [1, 2], [2, 3, 4, 5]])
    assert page is not None
    assert "1 1 100.0 100.0" in page  # row 0
    assert "2 to 3 1 0.0 0.0" in page  # row 1
    assert "4 to 7 4 75.0 60.0" in page  # rows 2 to 5: 3 of 4 are true, 3 of 5 are found


def test_groups_of_like_sizes_have_no_table(tmp_path: Path) -> None:
    assert table_of(tmp_path, [[0, 1], [2, 3, 4]]) is None


def test_rows_of_no_group_are_left_out(tmp_path: Path) -> None:
    page = table_of(tmp_path, [[0], [2, 3]])
    assert page is not None
    assert "1 1 100.0 100.0 2 to 3 2 66.7 66.7" in page
