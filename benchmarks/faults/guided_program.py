"""``guided_program.py KIND FILE FOLDER SEEDS [libFuzzer's options]``: one file of a reader, fuzzed until it goes wrong.

A script and no module of the package: the code under test must be imported while atheris instruments it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris

# Compiled kernels could not be instrumented. As plain Python they also refuse an index that is out of bounds.
os.environ["NUMBA_DISABLE_JIT"] = "1"
with atheris.instrument_imports(include=["xcore.data"]):
    from benchmarks.faults.fuzzing import read_files, sound_files
    from xcore.errors import EyrieError


def main() -> None:
    """Fuzz until the runs are used up, or something is raised that is no error of ours."""
    kind, name, folder = sys.argv[1:4]
    options, files = sound_files()[kind]
    place = Path(folder)
    place.mkdir(parents=True)

    def attempt(content: bytes) -> None:
        policy = "fail" if len(content) % 2 else "quarantine"
        try:
            read_files(options, {**files, name: content}, policy, place)
        except EyrieError:
            return

    atheris.Setup([sys.argv[0], *sys.argv[4:]], attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
