"""What all benchmarks share: rows, repeats in alternation, subprocess measurements, and peers in venvs of their own."""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

ROOT = Path(__file__).parents[1]
Result = TypeVar("Result")


class Row(TypedDict):
    """One measured figure. `goal` and `ok` are None where no goal is stated, or where it does not apply."""

    bench: str
    case: str
    metric: str
    value: float
    unit: str
    against: str | None
    goal: str | None
    ok: bool | None
    any_size: bool


@dataclass(frozen=True)
class Goal:
    """A figure that an issue asks for: at least, or at most, a number.

    `any_size` says that the goal holds for small data too, as the same bits on any number of threads do. The others
    are stated for full sizes, and a quick run does not judge them.
    """

    limit: float
    at_least: bool = True
    any_size: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


def row(
    bench: str,
    case: str,
    metric: str,
    value: float,
    unit: str,
    against: str | None = None,
    goal: Goal | None = None,
) -> Row:
    """A row, judged against its goal."""
    return Row(
        bench=bench,
        case=case,
        metric=metric,
        value=float(value),
        unit=unit,
        against=against,
        goal=None if goal is None else str(goal),
        ok=None if goal is None else goal.met_by(value),
        any_size=goal is not None and goal.any_size,
    )


def without_goal_of_full_size(row: Row) -> Row:
    """The row of a quick run: a goal that is stated for full sizes says nothing there."""
    return row if row["any_size"] else Row({**row, "goal": None, "ok": None})


@dataclass(frozen=True)
class Timing:
    """Wall seconds of several repeats."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The quickest repeat: neighbours on a shared machine only ever add time."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Largest minus smallest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def alternate(cases: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Run the cases in turn, `repeats` times each, so that the noise of a shared machine falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, function in cases.items():
            gc.collect()
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def load() -> float:
    """The machine's load average over the last minute."""
    return os.getloadavg()[0]


def peak_memory_bytes() -> int:
    """The largest resident memory of this program so far; ``getrusage`` would begin with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def cpu_seconds() -> float:
    """CPU time of this process so far, user and system, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_of(work: Callable[[], Result]) -> tuple[float, Result]:
    """The CPU seconds of some work, and its result."""
    start = cpu_seconds()
    result = work()
    return cpu_seconds() - start, result


def run_json(words: Sequence[str], python: Path | None = None, environment: Mapping[str, str] | None = None) -> Any:
    """Run Python with `words` in a process of its own and read the JSON on its last line of output."""
    done = subprocess.run(
        [str(python or sys.executable), *words],
        cwd=ROOT,
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def work_folder(*names: str) -> Path:
    """A folder for a benchmark's own files; it survives, so that data is made and peers are installed once."""
    folder = Path(os.environ.get("EYRIE_HOME", ROOT / "work")).joinpath("benchmarks", *names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def peer_python(name: str, *installs: Sequence[str]) -> Path:
    """The Python of a peer's own venv; each of `installs` is one ``pip install`` of those words, done once."""
    folder = work_folder("peers") / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = json.dumps([list(words) for words in installs])
    if not ready.exists() or ready.read_text() != wanted:
        print(f"setting up peer {name} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for words in installs:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *words], check=True)
        ready.write_text(wanted)
    return python


def data_folder(name: str) -> Path | None:
    """A real dataset's folder below ``XC_DATA`` or ``../shared/data``, or None where it is absent."""
    folder = Path(os.environ.get("XC_DATA", ROOT.parent / "shared" / "data")) / name
    return folder if folder.is_dir() else None
