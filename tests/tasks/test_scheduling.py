"""Steps start when their inputs are made, never more at once than allowed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from tasks.scheduling import run_in_order
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component


class Toy(Component):
    name: str


def build(context: BuildContext) -> dict[str, Any]:
    return {}


def recipe(name: str, **inputs: Recipe) -> Recipe:
    return Recipe("model", build, Toy(name=name), inputs)


class Started:
    def __init__(self, future: "Future[None]") -> None:
        self.future = future

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None:
        self.future.add_done_callback(fn)

    def wait(self) -> None:
        wait([self.future])


class Bench:
    """Runs toy steps in threads, and remembers what ran together."""

    def __init__(self, at_once: int) -> None:
        self.pool, self.at_once, self.lock = ThreadPoolExecutor(8), at_once, threading.Lock()
        self.running, self.most, self.ended = 0, 0, list[str]()
        self.stopped = threading.Event()
        self.meet = threading.Barrier(at_once, timeout=30)

    def work(self, name: str) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        if name.startswith("side"):
            self.meet.wait()  # passes only if as many steps as allowed are under way
        if name.startswith("endless"):
            assert self.stopped.wait(30)
        with self.lock:
            self.running -= 1

    def start(self, step: Recipe) -> Started:
        assert {source.options.name for source in step.inputs.values()} <= set(self.ended)
        return Started(self.pool.submit(self.work, step.options.name))

    def finished(self, step: Recipe, running: Any) -> None:
        running.future.result()
        self.ended.append(step.options.name)
        if step.options.name == "bad":
            raise RuntimeError("it went wrong")

    def run(self, lineage: list[Recipe]) -> None:
        run_in_order(lineage, self.start, self.finished, self.stopped.set, self.at_once)


@pytest.mark.parametrize("at_once", [1, 2])
def test_as_many_run_at_once_as_allowed_and_inputs_come_first(at_once: int) -> None:
    first = recipe("first")
    sides = [recipe(f"side-{place}", first=first) for place in range(4)]
    last = recipe("last", **{f"cell-{place}": side for place, side in enumerate(sides)}, first=first)
    bench = Bench(at_once)
    bench.run([first, *sides, last])
    assert bench.most == at_once
    assert (bench.ended[0], bench.ended[-1], len(bench.ended)) == ("first", "last", 6)


def test_an_error_stops_what_runs_starts_nothing_more_and_is_raised_at_the_end() -> None:
    bench = Bench(2)
    lineage = [recipe("bad"), recipe("endless"), recipe("never")]
    with pytest.raises(RuntimeError, match="it went wrong"):
        bench.run(lineage)
    assert bench.stopped.is_set()
    assert (bench.running, bench.ended) == (0, ["bad"])


def test_inputs_that_are_not_in_the_lineage_count_as_made() -> None:
    bench = Bench(2)
    bench.ended.append("kept")
    bench.run([recipe("new", kept=recipe("kept"))])
    assert bench.ended == ["kept", "new"]
