"""How many heads, and how long each of them is.

Fewer heads make fewer errors, so the memory decides their number. Heads that are read side by side (`mhp`) are cheapest
where they are of equal length. In a cascade the first head is the longest: a row looks at all of it, and at a few
groups of each further head.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xcore.errors import ConfigError

MOST_HEADS = 64
BYTES_PER_WEIGHT = 16  # the weight, its gradient and Adam's two means, float32


def equal_lengths(n_classes: int, n_heads: int) -> tuple[int, ...]:
    """Lengths that differ by at most 1 and have room for all classes, with the smallest sum, longest first."""
    base = math.isqrt(n_classes) if n_heads == 2 else int(n_classes ** (1 / n_heads))
    while base**n_heads < n_classes:
        base += 1
    base = max(1, base)
    n_shorter = 0
    while n_shorter < n_heads and (base - 1) ** (n_shorter + 1) * base ** (n_heads - n_shorter - 1) >= n_classes:
        n_shorter += 1
    return (base,) * (n_heads - n_shorter) + (base - 1,) * n_shorter


def cascade_lengths(n_classes: int, n_heads: int, n_kept: int) -> tuple[int, ...]:
    """Lengths of a cascade that keeps `n_kept` groups after each head: those with the smallest cost of a row.

    A row looks at ``a_1 + n_kept (a_2 + ... + a_H)`` outputs. With ``a_2 = ... = a_H`` this is smallest where
    ``a_1 = n_kept a_2``.
    """
    if n_heads == 1:
        return (n_classes,)
    kept = max(1, min(n_kept, n_classes))
    others = max(1, round((n_classes / kept) ** (1 / n_heads)))
    rest = others ** (n_heads - 1)
    first = -(-n_classes // rest)
    if n_heads == 2:
        return group_lengths(n_classes, first)
    return (first, *[others] * (n_heads - 1))


def group_lengths(n_classes: int, n_groups: int) -> tuple[int, int]:
    """Two lengths with about the given number of groups, none of which is empty: the rule of the authors' code."""
    size = -(-n_classes // n_groups)
    while n_groups * size - n_classes >= size:
        n_groups -= 1
    return n_groups, size


def fewest_heads(
    n_classes: int, dimensions: int, memory_mb: float, lengths: Callable[[int, int], tuple[int, ...]]
) -> int:
    """The smallest number of heads whose weights can be trained by Adam within a budget of memory.

    Raises
    ------
    ConfigError
        No number of heads fits.
    """
    smallest = math.inf
    for n_heads in range(1, min(MOST_HEADS, max(1, n_classes.bit_length())) + 1):
        needed = sum(lengths(n_classes, n_heads)) * dimensions * BYTES_PER_WEIGHT / 2**20
        if needed <= memory_mb:
            return n_heads
        smallest = min(smallest, needed)
    raise ConfigError(
        f"heads for {n_classes:,} classes and {dimensions} features need {smallest:.1f} MB at least, got memory_mb = "
        f"{memory_mb}: allow more, or take a narrower last layer"
    )
