"""Gradients of a batch, with the same bits for any number of threads.

How torch splits a product among threads changes its last bits. So torch runs on one thread here, and a batch is cut
into a fixed number of shards; threads take shards, and their gradients are added in the order of the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from xcore.numeric.matrices import Int64
from xcore.numeric.parallel import over_blocks

SHARDS = 4


class Lookup:
    """Rows of large tables that one shard uses; their gradients are kept apart from those of the other parameters."""

    def __init__(self, tables: Mapping[str, torch.Tensor]) -> None:
        self._tables = tables
        self.rows: dict[str, Int64] = {}
        self.leaves: dict[str, torch.Tensor] = {}

    def __call__(self, name: str, rows: Int64) -> torch.Tensor:
        """The given rows (m,), ascending and unrepeated, of a table, as a tensor (m, d) with a gradient of its own."""
        table, self.rows[name] = self._tables[name], rows
        self.leaves[name] = table[torch.from_numpy(rows).to(table.device)].requires_grad_()
        return self.leaves[name]


Loss = Callable[[Int64, Lookup, torch.Generator], torch.Tensor]


@dataclass
class Gradients:
    """Gradients of one batch.

    Attributes
    ----------
    loss : float
        Sum over the examples.
    whole : list of tensor
        One for each parameter.
    rows : mapping of table to (rows, gradients)
        Touched rows (m,) of each table, ascending, and their gradients (m, d).
    """

    loss: float
    whole: list[torch.Tensor]
    rows: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


def batch_gradients(
    loss: Loss,
    examples: Int64,
    parameters: Sequence[torch.Tensor],
    tables: Mapping[str, torch.Tensor],
    key: tuple[int, ...],
) -> Gradients:
    """The gradient of the mean loss of a batch; `key` (seed and step) decides what the shards draw."""

    device = parameters[0].device

    def work(shard: tuple[int, Int64]) -> tuple[float, list[torch.Tensor], Lookup, list[torch.Tensor]]:
        torch.set_num_threads(1)  # a thread of the pool keeps its own number
        number, own = shard
        generator = torch.Generator(device).manual_seed(int(np.random.default_rng([*key, number]).integers(2**63)))
        lookup = Lookup(tables)
        value = loss(own, lookup, generator)
        leaves = [*parameters, *lookup.leaves.values()]
        found = torch.autograd.grad(value, leaves)
        return float(value.detach()), list(found[: len(parameters)]), lookup, list(found[len(parameters) :])

    shards = [(number, own) for number, own in enumerate(np.array_split(examples, SHARDS)) if len(own)]
    done = over_blocks(work, shards)
    scale = 1.0 / len(examples)
    whole = [_added([part[1][place] for part in done]).mul_(scale) for place in range(len(parameters))]
    rows = {}
    for name in done[0][2].leaves:
        pieces = [(part[2].rows[name], part[3][list(part[2].leaves).index(name)]) for part in done]
        rows[name] = _added_rows(pieces, scale)
    return Gradients(sum(part[0] for part in done), whole, rows)


def _added(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _added_rows(pieces: list[tuple[Int64, torch.Tensor]], scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of rows added up over shards, shard by shard."""
    touched = np.unique(np.concatenate([rows for rows, _ in pieces]))
    total = pieces[0][1].new_zeros((len(touched), pieces[0][1].shape[1]))
    for rows, gradient in pieces:
        total[torch.from_numpy(np.searchsorted(touched, rows)).to(total.device)] += gradient
    return torch.from_numpy(touched).to(total.device), total.mul_(scale)


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Limit torch to one thread per call inside a ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
