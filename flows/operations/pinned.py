"""``python -P -m flows.operations.pinned MODULE WORDS``: runs a module in a process where our packages are ours.

Prefect puts the current folder first on the path when it loads a flow. Where our packages are imported already, a
user's folder of the same name is not looked at.
"""

from __future__ import annotations

import runpy
import sys

import flows
import tasks
import xcore

PINNED = (flows, tasks, xcore)  # modules below a package are found by the package

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
