"""``python -P -m flows.operations.pinned MODULE WORDS``: runs a module in a process where our packages are ours.

Prefect puts the current folder first on the path when it loads a flow. Where our packages are imported already, a
user's folder of the same name is not looked at. The process of a flow run leaves a record as long as it lives.
"""

from __future__ import annotations

import os
import runpy
import sys

import flows
import tasks
import xcore
from flows.operations.lost_runs import recorded_process

PINNED = (flows, tasks, xcore)  # modules below a package are found by the package


def run_module() -> None:
    """Run the module that the command line names, with the words behind it."""
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with recorded_process(os.environ.get("PREFECT__FLOW_RUN_ID")):
        run_module()
