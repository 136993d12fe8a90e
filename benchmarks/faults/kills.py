"""Kill -9 at random moments of all steps of every model, again and again, until the pipeline is done."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from benchmarks.faults.outcome import Outcome
from benchmarks.faults.work import MODELS, Child, digest, make_all, manifests, sound_store
from xcore.artifacts import Store

KILLS = 200


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """One outcome for each model."""
    names = ["parabel"] if quick else list(MODELS)
    for name in names:
        yield _kills(folder, name, 6 if quick else -(-KILLS // len(names)))


def _kills(folder: Path, name: str, wanted: int) -> Outcome:
    outcome, log, draws = Outcome(f"kill -9, {name}"), folder / "kills.log", random.Random(0)
    expected = digest(sound_store(folder, name))
    root = folder / "killed"
    shutil.rmtree(root, ignore_errors=True)
    before = time.monotonic()
    Child(partial(make_all, root, name), log).wait()  # once more, now that all is compiled
    seconds = time.monotonic() - before
    while outcome.counts["killed"] < wanted:
        shutil.rmtree(root, ignore_errors=True)
        _until_done(outcome, root, name, draws, seconds, log)
        outcome.counts["resumed to the end"] += 1
        _compare(outcome, digest(root), expected)
        _check_leftovers(outcome, root, expected)
    return outcome


def _until_done(outcome: Outcome, root: Path, name: str, draws: random.Random, seconds: float, log: Path) -> None:
    kept: dict[str, bytes] = {}
    while True:
        code = Child(partial(make_all, root, name), log).kill_after(draws.uniform(0.02, 0.8) * seconds)
        now = manifests(root)
        changed = [place for place in kept if kept[place] != now.get(place)]
        outcome.check(not changed, f"a finished step was lost or made again: {changed}")
        kept = now
        if code == 0:
            return
        outcome.counts["killed"] += code == -9
        outcome.check(code == -9, f"a resumed run ended with {code}: {log.read_text()[-2000:]}")
        if code != -9:
            return
        if outcome.counts["killed"] % 8 == 0:  # moments early in a run have had their turn: let this one end
            code = Child(partial(make_all, root, name), log).wait()
            outcome.check(code == 0, f"the last run ended with {code}: {log.read_text()[-2000:]}")
            return


def _check_leftovers(outcome: Outcome, root: Path, expected: dict[str, dict[str, str]]) -> None:
    store = Store(root)
    for path in store.leftovers(timedelta(0)):
        store.remove_folder(path)
    left = [str(path) for path in root.glob(".staging/*")]
    outcome.check(not left and digest(root) == expected, f"strays after collecting: {left}")


def _compare(outcome: Outcome, found: dict[str, dict[str, str]], expected: dict[str, dict[str, str]]) -> None:
    """Note the files that are missing, too many or different."""
    pairs = {(artifact, file) for store in (found, expected) for artifact in store for file in store[artifact]}
    other = [f"{a}/{f}" for a, f in sorted(pairs) if found.get(a, {}).get(f) != expected.get(a, {}).get(f)]
    outcome.check(not other, f"other bytes after {outcome.counts['killed']} kills: {other}")
