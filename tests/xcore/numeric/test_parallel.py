import os
from threading import Barrier, Thread

import numpy as np
import pytest

from tests.blas import blas_threads
from xcore.numeric.parallel import even_blocks, over_blocks, single_threaded_blas


def test_results_come_in_the_order_of_the_blocks() -> None:
    assert over_blocks(lambda block: block * 2, range(50)) == [2 * i for i in range(50)]


def test_blocks_within_blocks_end() -> None:
    assert over_blocks(lambda i: sum(over_blocks(lambda j: i * j, range(4))), range(9)) == [6 * i for i in range(9)]


def test_the_error_of_a_block_reaches_the_caller_and_the_next_call_works() -> None:
    def work(i: int) -> int:
        if i == 7:
            raise ValueError("block 7")
        return i

    with pytest.raises(ValueError, match="block 7"):
        over_blocks(work, range(20))
    assert over_blocks(work, range(7)) == list(range(7))


def test_a_forked_process_has_threads_of_its_own() -> None:
    over_blocks(lambda i: i, range(4))
    child = os.fork()
    if child == 0:
        os._exit(0 if over_blocks(lambda i: i, range(4)) == [0, 1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("n_blocks", [1, 3, 100])
def test_even_blocks_cover_everything_once(n_blocks: int) -> None:
    cost = np.array([5, 0, 0, 7, 1, 1, 1, 30, 2])
    blocks = even_blocks(cost, n_blocks)
    assert [i for block in blocks for i in block] == list(range(len(cost)))
    assert len(blocks) <= n_blocks
    assert even_blocks(np.zeros(0, np.int64), n_blocks) == []


def test_the_blas_limit_holds_until_the_last_user_leaves() -> None:
    before = blas_threads()
    entered, left = Barrier(2, timeout=10), Barrier(2, timeout=10)

    def other() -> None:
        with single_threaded_blas():
            entered.wait()
        left.wait()

    thread = Thread(target=other)
    thread.start()
    with single_threaded_blas():
        entered.wait()
        left.wait()
        assert blas_threads() == {1}
    thread.join()
    assert blas_threads() == before
