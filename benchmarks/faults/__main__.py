"""``python -m benchmarks.faults PART... [--quick]``: some parts of the fault suite alone."""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks.__main__ import show
from benchmarks.faults import PARTS, run


def main() -> int:
    """Print the rows as they come, and the CPU time; the exit code is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    went_wrong = False
    for row in run(arguments.quick, arguments.parts):
        show(row)
        went_wrong |= row["ok"] is False
    spent = os.times()
    print(f"\nCPU seconds: {sum(spent[:4]):.0f}")
    return int(went_wrong)


if __name__ == "__main__":
    sys.exit(main())
