"""Every file of every artifact, damaged in ten ways: each is noticed, and what is made again has the same bytes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.outcome import Outcome
from benchmarks.faults.work import MODELS, Child, digest, make_all, sound_store
from xcore.artifacts import ArtifactRef, Store
from xcore.errors import ArtifactError

Way = Callable[[Path, Path], object]  # the file, and another file of the store


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """The store of an undisturbed run of each model."""
    for model in ["parabel"] if quick else MODELS:
        root = sound_store(folder, model)
        yield _of_files(root)
        yield _of_fields(root)
        yield _made_again(root, model, quick)


def _cut(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _grow(path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def _instead(put: Callable[[Path, Path], object]) -> Way:
    def way(path: Path, other: Path) -> None:
        path.unlink()
        put(path, other)

    return way


OTHERS: tuple[Any, ...] = (None, "x", -1, [], {}, {"a": 1}, 1e300)
WAYS: dict[str, Way] = {
    "truncated": _cut,
    "flipped": _flip,
    "emptied": lambda path, other: os.truncate(path, 0),
    "grown": _grow,
    "deleted": lambda path, other: path.unlink(),
    "swapped": lambda path, other: path.write_bytes(other.read_bytes()[::-1]),
    "zeroed": lambda path, other: path.write_bytes(bytes(path.stat().st_size)),
    "a symbolic link": _instead(lambda path, other: path.symlink_to(other)),
    "a folder": _instead(lambda path, other: path.mkdir()),
    "a pipe": _instead(lambda path, other: os.mkfifo(path)),
}


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _of_files(root: Path) -> Outcome:
    """Damage each file in each way, look, and put it back."""
    outcome = Outcome(f"damaged files, {root.name.removeprefix('sound-')}")
    files = sorted(path for path in root.glob("[!.]*/*/*") if path.is_file() and path.stat().st_size)
    for path in files:
        whole = path.read_bytes()
        for name, damage in WAYS.items():
            damage(path, next(other for other in files if other != path))
            outcome.counts["damaged"] += 1
            _look(outcome, root, path, name)
            _remove(path)
            path.write_bytes(whole)
    return outcome


def _look(outcome: Outcome, root: Path, path: Path, name: str) -> None:
    ref = ArtifactRef(kind=path.parent.parent.name, id=path.parent.name)
    try:
        Store(root).open(ref)
    except ArtifactError:
        outcome.counts["noticed"] += 1
    except Exception as error:
        outcome.problems.append(f"{path} {name}: {type(error).__name__}: {error}")
    else:
        outcome.problems.append(f"{path} {name}: it was opened")


def _of_fields(root: Path) -> Outcome:
    """Change each field of each manifest, with and without a digest that fits."""
    outcome = Outcome(f"edited manifests, {root.name.removeprefix('sound-')}")
    for path in sorted(root.glob("[!.]*/*/manifest.json")):
        whole = path.read_text()
        edits = [(name, other) for name, value in json.loads(whole).items() for other in OTHERS if other != value]
        for field, other in (*edits, ("schema_version", 0)):  # the last: an older schema
            path.write_text(json.dumps(json.loads(whole) | {field: other}))
            outcome.counts["edited"] += 1
            _look(outcome, root, path, f"{field} = {other!r}")
        path.write_text(whole)
    return outcome


def _made_again(root: Path, model: str, quick: bool) -> Outcome:
    """Damage one file of every artifact, and make everything again."""
    outcome, expected = Outcome(f"made again, {model}"), digest(root)
    ways = list(WAYS.values())
    for turn in range(1 if quick else 3):
        for number, folder in enumerate(sorted(root.glob("[!.]*/*/"))):
            files = sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)
            if files:
                ways[(number + turn) % len(ways)](files[(number + turn) % len(files)], Path(__file__))
                outcome.counts["artifacts damaged"] += 1
        log = root.parent / "made-again.log"
        code = Child(partial(make_all, root, model), log).wait()
        outcome.check(code == 0, f"ended with {code}: {log.read_text()[-2000:]}")
        outcome.check(digest(root) == expected, "other bytes than before")
    return outcome
