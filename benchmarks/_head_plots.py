"""Pictures of `heads` and `head_quality`: ``python -m benchmarks._head_plots ROWS.json PICTURE.png``.

ROWS.json is what ``python -m benchmarks NAME --json`` printed.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness import Row

SIZES = re.compile(r"^(?P<name>.+), (?P<size>[\d,]+) classes$")
RANKS = re.compile(r"^rank (?P<size>\d+), (?P<name>.+)$")


def curves(rows: list[Row], metric: str, pattern: re.Pattern[str]) -> dict[str, list[tuple[int, float]]]:
    """Points of each case with this metric."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        match = pattern.match(row["case"])
        if match and row["metric"] == metric:
            found[match["name"]].append((int(match["size"].replace(",", "")), row["value"]))
    return found


def draw(axes: Axes, points: dict[str, list[tuple[int, float]]], across: str, up: str, log_up: bool = True) -> None:
    """One line per case."""
    for name, own in points.items():
        axes.plot(*zip(*sorted(own), strict=True), marker="o", label=name)
    axes.set_xscale("log")
    if log_up:
        axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def main() -> None:
    """Read the rows and write the picture that they are for."""
    rows: list[Row] = json.loads(Path(sys.argv[1]).read_text().strip().splitlines()[-1])
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    if rows[0]["bench"] == "heads":
        draw(left, curves(rows, "step, per row", SIZES), "classes", "training step, microseconds per row")
        draw(right, curves(rows, "peak memory", SIZES), "classes", "peak memory of the process, GB")
    else:
        draw(
            left, curves(rows, "training accuracy", RANKS), "rank of the weights", "training accuracy, %", log_up=False
        )
        draw(right, curves(rows, "loss", RANKS), "rank of the weights", "loss")
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
