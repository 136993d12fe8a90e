"""Gradients of a batch, with the same bits for any number of threads.

How torch splits a product among threads changes its last bits. So torch runs on one thread here, and a batch is cut
into a fixed number of shards; threads take shards, and their gradients are added in the order of the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from xcore.numeric.matrices import Int64
from xcore.numeric.parallel import over_blocks
from xcore.training.rows import add_rows

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


@dataclass(frozen=True)
class Gradients:
    """Gradients of a batch, or of one shard of it.

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
    rows: dict[str, tuple[Int64, torch.Tensor]]


def batch_gradients(
    loss: Loss,
    examples: Int64,
    parameters: Sequence[torch.Tensor],
    tables: Mapping[str, torch.Tensor],
    key: tuple[int, ...],
) -> Gradients:
    """The gradient of the mean loss of a batch; `key` (seed and step) decides what the shards draw."""
    device = next(iter((*parameters, *tables.values()))).device

    def gradients(shard: tuple[int, Int64]) -> Gradients:
        torch.set_num_threads(1)  # a thread of the pool keeps its own number
        number, own = shard
        generator = torch.Generator(device).manual_seed(int(np.random.default_rng([*key, number]).integers(2**63)))
        lookup = Lookup(tables)
        value = loss(own, lookup, generator)
        found = torch.autograd.grad(value, [*parameters, *lookup.leaves.values()])
        of_tables = zip(lookup.rows.items(), found[len(parameters) :], strict=True)
        rows = {name: (touched, gradient) for (name, touched), gradient in of_tables}
        return Gradients(float(value.detach()), list(found[: len(parameters)]), rows)

    shards = [(number, own) for number, own in enumerate(np.array_split(examples, SHARDS)) if len(own)]
    parts = over_blocks(gradients, shards)
    scale = 1.0 / len(examples)
    whole = [_added([part.whole[place] for part in parts]).mul_(scale) for place in range(len(parameters))]
    rows = {name: _added_rows([part.rows[name] for part in parts], scale) for name in parts[0].rows}
    return Gradients(sum(part.loss for part in parts), whole, rows)


def _added(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _added_rows(pieces: list[tuple[Int64, torch.Tensor]], scale: float) -> tuple[Int64, torch.Tensor]:
    """Gradients of rows added up over shards, shard by shard."""
    touched = np.unique(np.concatenate([rows for rows, _ in pieces]))
    total = pieces[0][1].new_zeros((len(touched), pieces[0][1].shape[1]))
    for rows, gradient in pieces:
        places = np.searchsorted(touched, rows)
        if total.device.type == "cpu":
            add_rows(total.numpy(), places, gradient.numpy())
        else:
            total.index_add_(0, torch.from_numpy(places).to(total.device), gradient)
    return touched, total.mul_(scale)


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Limit torch to one thread per call inside a ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
