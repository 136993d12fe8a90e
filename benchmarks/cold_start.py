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
LIMIT = Goal(20, at_least=False)  # seconds of the demo's steps, compiling included


def run(quick: bool) -> Iterator[Row]:
    """Each case has an empty cache of kernels and an empty work folder; a quick run leaves the set-up out."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _demo("no kernels", _places(Path(folder), "none"))
        if not quick:
            places = _places(Path(folder), "set-up")
            before = _children_cpu()
            words = [sys.executable, "-m", "flows", "kernels"]
            subprocess.run(words, cwd=ROOT, env=places, check=True, capture_output=True)
            yield row("cold_start", "eyrie kernels", "CPU of the set-up step", _children_cpu() - before, "s")
            yield from _demo("after eyrie kernels", places)


def _places(folder: Path, case: str) -> dict[str, str]:
    return os.environ | {
        "NUMBA_CACHE_DIR": str(folder / case / "numba"),
        "EYRIE_HOME": str(folder / case / "home"),
    }


def _demo(case: str, places: dict[str, str]) -> Iterator[Row]:
    before = _children_cpu()
    summary: dict[str, Any] = run_json(DEMO, environment=places)
    spent = _children_cpu() - before
    compiling = sum(step["compile_seconds"] for step in summary["steps"])
    working = sum(step["seconds"] for step in summary["steps"])
    yield row("cold_start", case, "compiling, wall", compiling, "s")
    yield row("cold_start", case, "compiling and steps, wall", compiling + working, "s", goal=LIMIT)
    yield row("cold_start", case, "CPU of the whole command", spent, "s")


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
