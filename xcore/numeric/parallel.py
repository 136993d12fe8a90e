"""What compiled kernels share: rows as plain arrays, and threads over fixed blocks.

The blocks do not depend on the number of threads, so neither does any bit of a result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock, local
from typing import NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from xcore.numeric.matrices import CSR, Float32, Int32, Int64

Block = TypeVar("Block")
Result = TypeVar("Result")


class SparseRows(NamedTuple):
    """The arrays of a CSR matrix, in the form that numba accepts."""

    data: Float32
    indices: Int32
    indptr: Int64

    @classmethod
    def of(cls, matrix: CSR) -> SparseRows:
        return cls(
            np.ascontiguousarray(matrix.data, np.float32),
            np.ascontiguousarray(matrix.indices, np.int32),
            np.ascontiguousarray(matrix.indptr, np.int64),
        )


def over_blocks(work: Callable[[Block], Result], blocks: Iterable[Block]) -> list[Result]:
    """``[work(block) for block in blocks]``, in as many threads as numba is set to use.

    `work` gains from threads where it releases the interpreter: kernels compiled with ``nogil=True``, and BLAS.
    It must not write what another block writes. The caller works along with helpers that are kept from call to call,
    so that a call costs some tens of microseconds; a helper's own calls within `work` run in its thread alone.
    """
    todo = list(blocks)
    n_threads = min(numba.get_num_threads(), len(todo))
    if n_threads <= 1 or _THREAD.is_helper:
        return [work(block) for block in todo]
    done: dict[int, Result] = {}
    numbers = iter(range(len(todo)))  # shared: each number goes to the thread that asks for it first

    def take_blocks() -> None:
        for number in numbers:
            done[number] = work(todo[number])

    helpers = [_helpers().submit(take_blocks) for _ in range(n_threads - 1)]
    try:
        take_blocks()
    finally:
        for _ in numbers:  # where a block failed, nobody begins another one
            pass
        running = [helper for helper in helpers if not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()
    return [done[number] for number in range(len(todo))]


class _Thread(local):
    """What a thread knows of itself."""

    is_helper = False


_THREAD = _Thread()


@cache
def _helpers() -> ThreadPoolExecutor:
    def begin() -> None:
        _THREAD.is_helper = True

    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "blocks", begin)


# Threads do not survive a fork: a child process starts its own.
os.register_at_fork(after_in_child=_helpers.cache_clear)


def even_blocks(cost: npt.NDArray[np.integer], n_blocks: int) -> list[range]:
    """Cut ``range(len(cost))`` into at most `n_blocks` runs of about equal total cost; every item counts at least 1."""
    total = np.cumsum(np.maximum(cost, 1), dtype=np.int64)
    if not len(total):
        return []
    targets = np.linspace(0, total[-1], n_blocks + 1)[1:]
    ends = np.unique(np.searchsorted(total, targets, side="left") + 1)
    return [range(start, min(end, len(total))) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


class _SingleThreadedBlas:
    """A limit that holds from the first user's entry to the last one's exit, for it is the whole process's."""

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._limit = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Keep BLAS and LAPACK to one thread a call: how they cut a product among threads changes its last bits."""
        from threadpoolctl import threadpool_limits

        with self._lock:
            if not self._users:
                self._limit.enter_context(threadpool_limits(1, user_api="blas"))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._limit.close()


single_threaded_blas = _SingleThreadedBlas()
