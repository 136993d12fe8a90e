"""Runs steps in the order of their inputs, several at a time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import Any, Protocol

from xcore.artifacts import Recipe


class Running(Protocol):
    """A step that was started."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None: ...

    def wait(self) -> None: ...


def run_in_order(
    lineage: Sequence[Recipe],
    start: Callable[[Recipe], Running],
    finished: Callable[[Recipe, Running], None],
    stop: Callable[[], None],
    at_once: int,
) -> None:
    """Start every step when its inputs are made, at most `at_once` at a time, and tell of each that ends.

    Inputs that are not in the lineage count as made.

    Steps are started and told of in the calling thread, the first of the lineage first. If `finished` raises or the
    thread is interrupted, no step is started any more, `stop` is called, and the error is raised when the steps
    that run have ended.
    """
    places = {recipe.id: place for place, recipe in enumerate(lineage)}
    waiting_for = TopologicalSorter(
        {
            place: [places[source.id] for source in lineage[place].inputs.values() if source.id in places]
            for place in places.values()
        }
    )
    waiting_for.prepare()
    ready: list[int] = []
    running: dict[int, Running] = {}
    ended: SimpleQueue[int] = SimpleQueue()
    try:
        while waiting_for.is_active():
            for place in waiting_for.get_ready():
                heapq.heappush(ready, place)
            while ready and len(running) < at_once:
                place = heapq.heappop(ready)
                running[place] = start(lineage[place])
                running[place].add_done_callback(partial(_put, ended, place))
            place = ended.get()
            finished(lineage[place], running.pop(place))
            waiting_for.done(place)
    except BaseException:
        stop()
        for step in running.values():
            step.wait()
        raise


def _put(ended: SimpleQueue[int], place: int, _: Any) -> None:
    ended.put(place)
