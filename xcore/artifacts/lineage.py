"""The order in which steps are made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node")


def inputs_first(
    result: Node, inputs_of: Callable[[Node], Iterable[Node]], key: Callable[[Node], Hashable]
) -> Iterator[Node]:
    """A result and all it is made of, inputs before what uses them, each key once.

    Cost: one call of `inputs_of` for each key, whatever the shape of the graph. There is no recursion, so the depth is
    not limited. `graphlib` would need the whole graph in advance, and would not keep the order of a plan.
    """
    seen = {key(result)}
    path = [(result, iter(inputs_of(result)))]
    while path:
        node, waiting = path[-1]
        following = next((source for source in waiting if key(source) not in seen), None)
        if following is None:
            path.pop()
            yield node
        else:
            seen.add(key(following))
            path.append((following, iter(inputs_of(following))))
