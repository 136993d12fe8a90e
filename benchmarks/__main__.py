"""``python -m benchmarks NAME [--quick] [--json]``."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks
from benchmarks.harness import Row, load

NOT_SUBJECTS = {"harness", "__main__"}


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
    rows: list[Row] = importlib.import_module(f"benchmarks.{arguments.name}").run(arguments.quick)
    if arguments.json:
        print(json.dumps(rows))
    else:
        _show(rows, before)
    return int(any(row["ok"] is False for row in rows))


def _show(rows: list[Row], load_before: float) -> None:
    lines = [("case", "metric", "value", "unit", "against", "goal", "")]
    for row in rows:
        verdict = {True: "ok", False: "MISSED", None: ""}[row["ok"]]
        lines.append(
            (
                row["case"],
                row["metric"],
                f"{row['value']:.4g}",
                row["unit"],
                row["against"] or "",
                row["goal"] or "",
                verdict,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"\nload average {load_before:.2f} before, {load():.2f} after")


if __name__ == "__main__":
    sys.exit(main())
