"""What arrays of a file must be before a compiled kernel uses them: kernels check no index.

Each `load` takes its arrays from an `ArrayFile` and says in a chain of checks what kernels rely on:

    labels = file.take("labels", np.int32, (None,)).within(0, n_labels).ascending().array

A check reads its array once, costs O(size), and raises `ArtifactDamaged` with the file, the array, what it found and
what it expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from xcore.errors import ArtifactDamaged
from xcore.numeric.arrays import open_arrays
from xcore.numeric.matrices import Int64

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Checked:
    """An array and its place; every check returns it, so that checks can be chained.

    Attributes
    ----------
    file : Path
    name : str
        Of the array or column within the file.
    array : numpy array
    """

    file: Path
    name: str
    array: Array

    def finite(self) -> Self:
        """No NaN and no infinity."""
        if not is_finite(self.array):
            at = int(np.flatnonzero(~np.isfinite(self.array.reshape(-1)))[0])
            self.refuse(f"holds {self.array.reshape(-1)[at]} at place {at:,}", "finite numbers only")
        return self

    def within(self, low: float, end: float) -> Self:
        """At least `low`, and below `end`."""
        if self.array.size:
            smallest, largest = self.array.min(), self.array.max()
            if not (low <= smallest and largest < end):
                self.refuse(f"holds numbers from {smallest} to {largest}", f"numbers from {low} to below {end}")
        return self

    def ascending(self, starts: Int64 | None = None) -> Self:
        """Each number is above the one before; with `starts` (checked offsets), within each part only."""
        falls = self.array[1:] <= self.array[:-1]
        if starts is not None:
            falls[_inner(starts, len(self.array)) - 1] = False
        if falls.any():
            self.refuse(f"does not rise from place {int(falls.argmax()):,} to the next", "ascending numbers")
        return self

    def offsets(self, end: int) -> Self:
        """Begins with 0, never falls, and ends with `end`."""
        array = self.array
        if not len(array) or array[0] != 0 or array[-1] != end or (array[1:] < array[:-1]).any():
            ends = f"{array[0]} to {array[-1]}" if len(array) else "nowhere"
            self.refuse(f"leads from {ends}, or falls in between", f"offsets that never fall, from 0 to {end}")
        return self

    def refuse(self, found: str, expected: str) -> NoReturn:
        """Raise the error that every check raises."""
        raise ArtifactDamaged(f"{self.file}: array '{self.name}' {found}, expected {expected}; make the artifact again")


class ArrayFile:
    """A safetensors file. Arrays are taken out one by one and checked for type and shape; none may be left over."""

    def __init__(self, path: Path) -> None:
        self.path, self._arrays = path, open_arrays(path)
        self._taken: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        extra = sorted(self._arrays.keys() - self._taken)
        if kind is None and extra:
            raise ArtifactDamaged(f"{self.path} holds unknown arrays {extra}; make the artifact again")

    def take(
        self, name: str, dtype: type[np.generic] | tuple[type[np.generic], ...], shape: tuple[int | None, ...]
    ) -> Checked:
        """An array of a type, or of one of several, and of a shape, where None stands for any length."""
        if name not in self._arrays:
            raise ArtifactDamaged(
                f"{self.path} holds the arrays {sorted(self._arrays)}, expected '{name}' too; make the artifact again"
            )
        self._taken.add(name)
        found = Checked(self.path, name, self._arrays[name])
        kinds = [np.dtype(kind) for kind in (dtype if isinstance(dtype, tuple) else (dtype,))]
        if found.array.dtype not in kinds:
            found.refuse(f"is of type {found.array.dtype}", " or ".join(map(str, kinds)))
        if len(found.array.shape) != len(shape) or any(
            length not in (None, own) for own, length in zip(found.array.shape, shape, strict=True)
        ):
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            found.refuse(f"has the shape {found.array.shape}", f"({wanted})")
        return found


def is_finite(array: Array) -> bool:
    """Whether an array has no NaN and no infinity; the smallest number is NaN where there is one."""
    return not array.size or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def _inner(starts: Int64, size: int) -> Int64:
    """The starts of parts that have an element before them."""
    inner: Int64 = starts[(starts > 0) & (starts < size)]
    return inner
