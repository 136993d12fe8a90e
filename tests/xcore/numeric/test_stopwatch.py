"""The seconds of compiling are told apart from those of work."""

import time

import numba
import numpy as np
import pytest

from xcore.artifacts.meter import Meter
from xcore.numeric.stopwatch import Stopwatch, tell_first_compilation


def compile_a_kernel() -> None:
    numba.njit(lambda x: x[::-1].sum() + np.sort(x)[0])(np.ones(3))


def test_compiling_is_not_part_of_the_seconds() -> None:
    start = time.perf_counter()
    with Stopwatch() as watch:
        compile_a_kernel()
    whole = time.perf_counter() - start
    assert watch.compile_seconds > watch.seconds, "there is next to nothing but compiling"
    assert watch.seconds + watch.compile_seconds == pytest.approx(whole, abs=0.05)


def test_work_without_compiling_has_no_such_seconds() -> None:
    with Stopwatch() as watch:
        sum(range(1000))
    assert watch.compile_seconds == 0.0
    assert watch.seconds > 0


def test_a_step_is_metered_without_what_it_compiled() -> None:
    with Meter() as meter:
        compile_a_kernel()
    assert meter.compile_seconds > meter.seconds


def test_the_first_compilation_is_told_once() -> None:
    told: list[str] = []
    tell_first_compilation(lambda: told.append("compiling"))
    compile_a_kernel()
    compile_a_kernel()
    tell_first_compilation(None)
    assert told == ["compiling"]
