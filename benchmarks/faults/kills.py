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
from benchmarks.faults.work import MODELS, Child, digest, make_all, manifests
from xcore.artifacts import Store

KILLS = 200


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """One outcome for each model; the store of an undisturbed run stays in the folder ``sound-MODEL``."""
    names = ["parabel"] if quick else list(MODELS)
    for name in names:
        yield _kills(folder, name, 6 if quick else -(-KILLS // len(names)))


def _kills(folder: Path, name: str, wanted: int) -> Outcome:
    outcome, log, draws = Outcome(f"kill -9, {name}"), folder / "kills.log", random.Random(0)
    sound = folder / f"sound-{name}"
    Child(partial(make_all, sound, name), log).wait()  # compiles what is not compiled yet
    shutil.rmtree(sound)
    before = time.monotonic()
    code = Child(partial(make_all, sound, name), log).wait()
    seconds, expected = time.monotonic() - before, digest(sound)
    outcome.check(code == 0, f"the undisturbed run ended with {code}: {log.read_text()[-2000:]}")
    root = folder / "killed"
    while outcome.counts["killed"] < wanted:
        shutil.rmtree(root, ignore_errors=True)
        _until_done(outcome, root, name, draws, seconds, log)
        outcome.counts["resumed to the end"] += 1
        outcome.check(digest(root) == expected, f"{name}: other bytes after {outcome.counts['killed']} kills")
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
