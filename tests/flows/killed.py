"""Runs the command line and kills its own process inside a named step: ``killed.py STEP MOMENT WORDS...``.

For the moment ``checkpoint-N`` the step does not matter: the process dies after the N-th checkpoint of a training.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from flows.__main__ import main
from xcore.artifacts import Manifest, Store, store
from xcore.training import checkpoints


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in(step: str, moment: str) -> None:
    """`built`: all files are staged, nothing is in place. `half`: the first file is in place, the manifest is not."""
    publish = Store._publish

    def publish_or_die(self: Store, manifest: Manifest, directory: Path) -> None:
        if manifest.component == step.replace("_", " "):
            if moment == "half":
                name = next(iter(manifest.files))
                target = Path(self._path(manifest.ref))
                target.mkdir(parents=True, exist_ok=True)
                (directory / name).rename(target / name)
            die()
        publish(self, manifest, directory)

    store.Store._publish = publish_or_die


def kill_after_checkpoint(number: int) -> None:
    """A checkpoint is written after every step, until the `number`-th."""
    checkpoints.CHECKPOINT_SECONDS, checkpoints.CHECKPOINT_SHARE = 0.0, float("inf")
    write, written = checkpoints.Checkpoints.write, list[str]()

    def write_or_die(self: checkpoints.Checkpoints, arrays: checkpoints.Arrays, name: str = "state") -> None:
        write(self, arrays, name)
        written.append(name)
        if len(written) == number:
            die()

    checkpoints.Checkpoints.write = write_or_die


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    if arguments[1].startswith("checkpoint-"):
        kill_after_checkpoint(int(arguments[1].removeprefix("checkpoint-")))
    else:
        kill_in(arguments[0], arguments[1])
    sys.exit(main(arguments[2:]))
