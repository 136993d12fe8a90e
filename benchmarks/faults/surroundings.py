"""The same pipeline in other surroundings: little room, many at once, other threads, seeds, languages and places."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.outcome import Outcome
from benchmarks.faults.work import REFUSED, Child, digest, make_all, sound_store
from benchmarks.harness import ROOT

MODEL = "parabel"
SECONDS = 120  # a run without limits takes a few
SURROUNDINGS = (
    {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    {"NUMBA_NUM_THREADS": "2", "PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Pacific/Apia"},
    {"PYTHONHASHSEED": "4000000000", "LC_ALL": "tr_TR.UTF-8", "TZ": "America/St_Johns"},
    {"NUMBA_NUM_THREADS": "3", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "TZ": "UTC"},
    {"PYTHONHASHSEED": "random", "LANG": "de_DE.ISO-8859-1", "LC_NUMERIC": "de_DE.UTF-8"},
)


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """All must end with the bytes of an undisturbed run."""
    expected = digest(sound_store(folder, MODEL))
    yield _little_room(folder, expected, quick)
    if not quick:
        yield _little_memory(folder, expected)
    yield _many_at_once(folder, expected, 3 if quick else 12)
    yield _elsewhere(folder, expected, SURROUNDINGS[1:3] if quick else SURROUNDINGS)


def _little_room(folder: Path, expected: dict[str, dict[str, str]], quick: bool) -> Outcome:
    """Files that may not grow beyond a size, as on a full disk: refused with a message, and finished later."""
    outcome = Outcome("little room on the disk")
    for size in (1 << 10, 1 << 14) if quick else [1 << power for power in range(8, 20)]:
        code = _with_limit(folder, expected, outcome, resource.RLIMIT_FSIZE, size)
        outcome.check(code in (0, REFUSED), f"{size} bytes per file: ended with {code}")
    return outcome


def _little_memory(folder: Path, expected: dict[str, dict[str, str]]) -> Outcome:
    """An address space that is too small. Compiled libraries end the process then, or wait; nothing may be lost."""
    outcome = Outcome("little memory")
    for space in (1 << 31, 5 << 29, 3 << 30, 4 << 30):
        code = _with_limit(folder, expected, outcome, resource.RLIMIT_AS, space)
        outcome.counts["ended by a library or killed"] += code < 0
        outcome.check(code in (0, REFUSED) or code < 0, f"{space} bytes: ended with {code}")
    return outcome


def _with_limit(folder: Path, expected: dict[str, dict[str, str]], outcome: Outcome, which: int, limit: int) -> int:
    """Run with a limit, then without; the exit code of the first run."""
    root, log = folder / "limited", folder / "limited.log"
    shutil.rmtree(root, ignore_errors=True)
    code = Child(partial(make_all, root, MODEL), log, {which: limit}).wait(SECONDS)
    outcome.counts["tried"] += 1
    outcome.counts["refused"] += code == REFUSED
    last = Child(partial(make_all, root, MODEL), log).wait()
    outcome.check(last == 0 and digest(root) == expected, f"not finished after {limit}: {log.read_text()[-2000:]}")
    return code


def _many_at_once(folder: Path, expected: dict[str, dict[str, str]], n: int) -> Outcome:
    """All make the same ids in one store."""
    outcome, root = Outcome("racing pipelines"), folder / "raced"
    logs = [folder / f"race-{number}.log" for number in range(n)]
    racers = [Child(partial(make_all, root, MODEL), log) for log in logs]
    for racer, log in zip(racers, logs, strict=True):
        code = racer.wait()
        outcome.counts["racers"] += 1
        outcome.check(code == 0, f"ended with {code}: {log.read_text()[-2000:]}")
    outcome.check(digest(root) == expected, "other bytes than alone")
    return outcome


def _elsewhere(folder: Path, expected: dict[str, dict[str, str]], places: tuple[dict[str, str], ...]) -> Outcome:
    """New processes in other working folders, with other variables."""
    outcome = Outcome("other surroundings")
    program = (
        "import sys; from pathlib import Path; from benchmarks.faults.work import make_all;"
        f"make_all(Path(sys.argv[1]), {MODEL!r})"
    )
    for number, changed in enumerate(places):
        root, cwd = folder / f"elsewhere-{number}", folder / f"place {number} ünï"
        cwd.mkdir(exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | changed
        words = [sys.executable, "-c", program, str(root)]
        done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        outcome.counts["tried"] += 1
        same = done.returncode == 0 and digest(root) == expected
        outcome.check(same, f"{json.dumps(changed)}: {done.returncode} {done.stderr[-1500:]}")
    return outcome
