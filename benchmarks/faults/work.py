"""A small pipeline for each model, made in a process that can be killed: the steps without Prefect and MLflow."""

from __future__ import annotations

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flows.catalogue import FLOWS
from flows.params import PipelineParams
from flows.presets import load_params
from xcore.artifacts import Recipe, Store
from xcore.artifacts.identity import file_sha256
from xcore.errors import EyrieError

SMALL = ("data.reader.n_train=400", "data.reader.n_test=100", "data.reader.n_labels=40", "data.reader.n_features=300")
DEMO = Path(__file__).parents[2] / "deployments/presets/demo.yaml"
MODELS = {
    "parabel": ("model.kind=parabel",),
    "ova": ("model.kind=ova",),
    "negative-sampling": ("model.kind=negative-sampling", "model.epochs=3"),
    "memory": ("model.kind=memory",),
    "network": ("model.kind=network", "model.epochs=3"),
    "label-subset": ("model.kind=label-subset",),
    "siamesexml": (
        "model.kind=siamesexml",
        "model.encoder={dimensions: 16, epochs: 2}",
        "model.classifiers={epochs: 2}",
        "model.joint_epochs=1",
    ),
    "deep-miml": ("model.kind=deep-miml", "model.epochs=3"),
    "co-attention": ("model.kind=co-attention", "model.epochs=3"),
    "ensemble": (
        "model.kind=ensemble",
        "model.members=[{model: {kind: ova}}, {model: {kind: parabel}}]",
        "data.holdout.dev=0.2",
    ),
}
REFUSED, SURPRISED = 2, 3  # exit codes of a child: one of our errors, or anything else


def lineage(model: str) -> list[Recipe]:
    """All steps of the pipeline with one model, inputs first."""
    params = load_params(PipelineParams, DEMO, [*SMALL, *MODELS[model]])
    return list(FLOWS["pipeline"].plan(params).lineage())


def make_all(root: Path, model: str) -> None:
    """Make what the store lacks."""
    store = Store(root)
    for recipe in lineage(model):
        store.make(recipe)


def sound_store(folder: Path, model: str) -> Path:
    """The store of an undisturbed run, made at its first use."""
    root = folder / f"sound-{model}"
    if not root.is_dir():
        log = folder / "sound.log"
        code = Child(partial(make_all, root, model), log).wait()
        if code:
            raise EyrieError(f"the undisturbed run of {model} ended with {code}: {log.read_text()[-2000:]}")
    return root


def digest(root: Path) -> dict[str, dict[str, str]]:
    """Digests of the files of all artifacts. Nothing but plain reading: a library's threads do not survive a fork."""
    folders = sorted(path.parent for path in _manifest_files(root))
    return {
        f"{folder.parent.name}/{folder.name}": {
            path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != "manifest.json"
        }
        for folder in folders
    }


def manifests(root: Path) -> dict[str, bytes]:
    """The manifests as they stand: they say when an artifact was made."""
    return {str(path.parent): path.read_bytes() for path in _manifest_files(root)}


def _manifest_files(root: Path) -> Iterator[Path]:
    """Manifests of artifacts; one in the staging folder belongs to a step that was killed before it was published."""
    return root.glob("[!.]*/*/manifest.json")


class Child:
    """A forked process that does one thing. It begins with all modules loaded, so a kill seldom hits an import."""

    def __init__(self, work: Callable[[], Any], log: Path, limits: Mapping[int, int] | None = None) -> None:
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._run(work, log, limits or {}))

    @staticmethod
    def _run(work: Callable[[], Any], log: Path, limits: Mapping[int, int]) -> int:
        with log.open("w") as told:
            try:
                for which, limit in limits.items():
                    resource.setrlimit(which, (limit, limit))
                work()
            except (EyrieError, OSError, MemoryError) as error:  # the last two become messages of the command line
                told.write(f"{type(error).__name__}: {error}\n")
                return REFUSED
            except BaseException:
                traceback.print_exc(file=told)
                return SURPRISED
        return 0

    def kill_after(self, seconds: float) -> int:
        """The exit code, or -9 if the child was still at work after that time and was killed."""
        limit = self.started + seconds
        while time.monotonic() < limit:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def wait(self, seconds: float = 600) -> int:
        """The exit code; a child that does not end is killed."""
        return self.kill_after(seconds)
