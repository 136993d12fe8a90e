"""Random numbers by counter: a draw is a hash of its key and its number, so bits depend on neither order nor threads.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a Weyl sequence.
"""

from __future__ import annotations

from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


@numba.njit(cache=True, nogil=True)
def hashed(key: np.uint64, number: int) -> np.uint64:
    """64 well mixed bits of a key and a number."""
    # Neighbouring numbers lie far apart on the Weyl sequence; the rounds then spread every bit over all 64.
    state = key + _STEP * (np.uint64(number) + np.uint64(1))
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def unit(key: np.uint64, number: int) -> float:
    """Draw `number` of a key: uniform in [0, 1), 53 bits."""
    return float(hashed(key, number) >> np.uint64(11)) * _TO_UNIT  # 53 bits are a double's whole precision


@numba.njit(cache=True, nogil=True)
def skipped(key: np.uint64, n: int) -> np.uint64:
    """The key whose number 0 is number n of the given one."""
    return key + _STEP * np.uint64(n)


@numba.njit(cache=True, nogil=True)
def keys_of(seed: np.uint64, stream: int, numbers: npt.NDArray[np.int64]) -> Keys:
    """A key for each of `numbers` in one of many streams of a seed."""
    keys, own = np.empty(len(numbers), np.uint64), hashed(seed, stream)
    for i in range(len(numbers)):
        keys[i] = hashed(own, numbers[i])
    return keys
