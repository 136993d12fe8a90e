"""The demo where no kernel was compiled yet: without `eyrie kernels`, and after it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Goal, Row, row, run_json

DEMO = ("-m", "flows", "pipeline", "deployments/presets/demo.yaml", "--json")
LIMIT = Goal(20, at_least=False)  # CPU seconds of the demo's command after the set-up step


def run(quick: bool) -> Iterator[Row]:
    """Each case has empty caches and an empty work folder; a quick run leaves the set-up out."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _demo("no kernels", _places(Path(folder), "none"))
        if not quick:
            places = _places(Path(folder), "set-up")
            before = _children_cpu()
            words = [sys.executable, "-m", "flows", "kernels"]
            subprocess.run(words, cwd=ROOT, env=places, check=True, capture_output=True)
            yield row("cold_start", "eyrie kernels", "CPU of the set-up step", _children_cpu() - before, "s")
            yield from _demo("after eyrie kernels", places, LIMIT)
            yield from _demo("the next call", places)


def _places(folder: Path, case: str) -> dict[str, str]:
    return os.environ | {
        "NUMBA_CACHE_DIR": str(folder / case / "numba"),
        "XDG_CACHE_HOME": str(folder / case / "cache"),  # empty databases, fonts
        "EYRIE_HOME": str(folder / case / "home"),
    }


def _demo(case: str, places: dict[str, str], goal: Goal | None = None) -> Iterator[Row]:
    before = _children_cpu()
    summary: dict[str, Any] = run_json(DEMO, environment=places)
    spent = _children_cpu() - before
    compiling = sum(step["compile_seconds"] for step in summary["steps"] if not step["cached"])
    working = sum(step["seconds"] for step in summary["steps"] if not step["cached"])
    yield row("cold_start", case, "compiling, wall", compiling, "s")
    yield row("cold_start", case, "steps, wall", working, "s")
    yield row("cold_start", case, "CPU of the whole command", spent, "s", goal=goal)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
