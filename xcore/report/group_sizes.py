"""How good imputed labels are by the size of the groups that their rows belong to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xcore.grouping.groups import Groups
from xcore.numeric.matrices import Int64
from xcore.report.html import Child, Html, element, note, table
from xcore.report.rows import batches, in_step, lists, named_in
from xcore.report.wording import count, percent


def group_sizes_table(groups: Path, imputed: Path, truth: Path) -> Html | None:
    """Precision and recall of the imputed labels in bands of sizes; None if all groups are in one band.

    A row of several groups counts for the largest. Cost and memory: O(memberships), and the labels batch by batch.
    """
    bands = _band_of_rows(Groups.load(groups))
    used = np.unique(bands[bands >= 0])
    if len(used) < 2:
        return None
    rows, offered, true, right = np.zeros((4, int(used[-1]) + 1), np.int64)
    start = 0
    for claim, known in in_step(batches(imputed / "labels.parquet", ["labels"]), batches(truth, ["labels"])):
        here = bands[start : start + claim.num_rows]
        start += claim.num_rows
        (given_rows, given), (true_rows, labels) = lists(claim, "labels"), lists(known, "labels")
        _add(rows, here)
        _add(offered, here[given_rows])
        _add(true, here[true_rows])
        _add(right, here[given_rows][named_in(given_rows, given, true_rows, labels)])
    shown: list[Sequence[Child]] = [
        [_name(band), count(int(rows[band])), *(_share(right[band], whole[band]) for whole in (offered, true))]
        for band in used.tolist()
    ]
    return element(
        "div",
        element("h3", "By size of the group"),
        table(["Members", "Rows", "Precision, %", "Recall, %"], shown, sortable=True),
        note("A row that is in several groups counts for the largest of them."),
    )


def _band_of_rows(groups: Groups) -> Int64:
    """The band of the largest group of each row (n,): band b has 2^b members or more, but fewer than 2^(b + 1)."""
    sizes = np.diff(groups.members.indptr)
    largest = np.zeros(groups.n_rows, np.int64)
    np.maximum.at(largest, groups.members.indices, np.repeat(sizes, sizes))
    return np.where(largest > 0, np.log2(np.maximum(largest, 1)).astype(np.int64), -1)


def _add(totals: Int64, bands: Int64) -> None:
    totals += np.bincount(bands[bands >= 0], minlength=len(totals))


def _name(band: int) -> str:
    low, high = 1 << band, (1 << (band + 1)) - 1
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _share(part: int, whole: int) -> str:
    return percent(part / whole, 1) if whole else "–"
