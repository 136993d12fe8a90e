"""Odd inputs for every reader that libFuzzer makes: it keeps what reaches code that nothing reached before.

It needs atheris (``pip install atheris``), and is left out where that is not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.faults.fuzzing import CORPUS, MEMORY, SECONDS, sound_files
from benchmarks.faults.outcome import Outcome

RUNS = 2_000  # of each file of a reader
PROGRAM = Path(__file__).with_name("guided_program.py")


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """Each file of each reader in a process of its own."""
    if find_spec("atheris") is None:
        print("guided: atheris is not installed", file=sys.stderr)
        return
    for kind, (_, files) in sound_files().items():
        for name in files:
            yield _fuzzed(folder / "guided", kind, name, 100 if quick else RUNS)


def _fuzzed(place: Path, kind: str, name: str, runs: int) -> Outcome:
    outcome = Outcome(f"guided fuzzing, {kind} {name}")
    shutil.rmtree(place, ignore_errors=True)
    seeds = place / "seeds"
    shutil.copytree(CORPUS / kind, seeds) if (CORPUS / kind).is_dir() else seeds.mkdir(parents=True)
    (seeds / "sound").write_bytes(sound_files()[kind][1][name])
    words = [sys.executable, str(PROGRAM), kind, name, str(place / "files"), str(seeds)]
    limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY >> 20}", f"-artifact_prefix={place}/"]
    done = subprocess.run(
        [*words, f"-runs={runs}", "-seed=1", "-max_len=4096", *limits], capture_output=True, text=True, check=False
    )
    told = re.findall(r"^#(\d+)\s.* cov: (\d+)", done.stderr, re.M)
    outcome.counts["inputs"] = int(told[-1][0]) if told else 0
    outcome.counts["places reached"] = int(told[-1][1]) if told else 0
    outcome.counts["kept"] = len(list(seeds.iterdir()))
    if done.returncode:
        found = [path.read_bytes()[:300] for path in sorted(place.glob("*-*"))]
        outcome.problems.append(f"ended with {done.returncode}: {found} {done.stdout[-1500:]} {done.stderr[-1500:]}")
    return outcome
