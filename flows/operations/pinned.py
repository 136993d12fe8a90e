"""``python -P -m flows.operations.pinned MODULE WORDS``: runs a module in a process where our packages are ours.

Prefect puts the current folder first on the path when it loads a flow. Where our packages are imported already, a
user's folder of the same name is not looked at. The process of a flow run leaves a record as long as it lives, and
goes on where the worker that reads its output is gone.
"""

from __future__ import annotations

import os
import runpy
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

import flows
import tasks
import xcore
from flows.operations.lost_runs import recorded_process

PINNED = (flows, tasks, xcore)  # modules below a package are found by the package


class _Unread(FileIO):
    """A stream that drops what nobody reads any more. Rich, which prints Prefect's logs, would end the program."""

    def write(self, content: Any) -> int:
        """Take all of it, also where the other end of the pipe is closed."""
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def outlive_readers() -> None:
    """Let output to a pipe never fail, whoever closed the other end."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = BufferedWriter(_Unread(stream.fileno(), "w", closefd=False))
        setattr(sys, name, TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True))


def run_module() -> None:
    """Run the module that the command line names, with the words behind it."""
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    outlive_readers()
    with recorded_process(os.environ.get("PREFECT__FLOW_RUN_ID")):
        run_module()
