"""``python -m benchmarks NAME [--quick] [--json]``."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks
from benchmarks.harness import Row, load, without_goal_of_full_size

NOT_SUBJECTS = {"harness", "__main__"}
WIDTHS = (36, 40, 9, 6, 12, 8, 6)  # case, metric, value, unit, against, goal, verdict


def subjects() -> list[str]:
    """Modules that have a `run`; names with an underscore in front are their parts."""
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    return sorted(name for name in names if name not in NOT_SUBJECTS and not name.startswith("_"))


def main() -> int:
    """Run one subject and print its rows; the exit code is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=subjects())
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: does it run at all?")
    parser.add_argument("--json", action="store_true", help="print a list of rows")
    arguments = parser.parse_args()
    before = load()
    rows: list[Row] = []
    for row in importlib.import_module(f"benchmarks.{arguments.name}").run(arguments.quick):
        rows.append(without_goal_of_full_size(row) if arguments.quick else row)
        if not arguments.json:
            show(rows[-1])
    print(json.dumps(rows) if arguments.json else f"\nload average {before:.2f} before, {load():.2f} after")
    return int(any(row["ok"] is False for row in rows))


def show(row: Row) -> None:
    """Print a row at once: a benchmark may take long, and what it has measured is not to be lost."""
    verdict = {True: "ok", False: "MISSED", None: ""}[row["ok"]]
    value = f"{row['value']:.4g}"
    cells = (row["case"], row["metric"], value, row["unit"], row["against"] or "", row["goal"] or "", verdict)
    print("  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
