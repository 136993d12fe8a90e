"""How much memory there is, asked before a large piece of it is taken."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence
from pathlib import Path

import psutil

from xcore.errors import NotEnoughMemory

TRAINED = 20  # bytes per trained weight: its value, gradient, Adam's two moments and the best value so far, float32
_GROUP_LIMITS = (  # of a container: the second kind of kernel interface first
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory() -> int:
    """Bytes that this process may still take: what the machine, its container and its own limit leave."""
    limits: list[int] = [psutil.virtual_memory().available]
    for limit, usage in _GROUP_LIMITS:
        try:
            limits.append(int(Path(limit).read_text()) - int(Path(usage).read_text()))
        except (OSError, ValueError):  # another kernel, or "max": no limit
            continue
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft - psutil.Process().memory_info().vms)
    return max(0, min(limits))


def need_memory(n_bytes: int, what: str, instead: str) -> None:
    """Raise `NotEnoughMemory` where `what` would take more than there is; `instead` says what to change.

    Better than to begin: a process without memory is killed after minutes, and says nothing.
    """
    free = free_memory()
    if n_bytes > free:
        raise NotEnoughMemory(
            f"not enough memory: {what} would take about {n_bytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free. "
            f"{instead}"
        )


def need_array(shape: Sequence[int], what: str, instead: str, *, entry_bytes: int = 4) -> None:
    """`need_memory` for an array and what is kept beside it, which is `entry_bytes` per entry in all."""
    sizes = " x ".join(f"{size:,}" for size in shape)
    need_memory(math.prod(map(int, shape)) * entry_bytes, f"{what} ({sizes})", instead)
