"""Checkpoints: the finished work of a killed fit, kept so that the next fit continues from there to the same bits.

A checkpoint carries a digest of its own content. One that is damaged, cut short or of another training is not used:
the log says so, and the work is done again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcore.errors import ArtifactDamaged
from xcore.files import replacing
from xcore.numeric.arrays import open_arrays, write_arrays

CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 0.05  # of the time may go to writing checkpoints
DIGEST = "digest"

Arrays = Mapping[str, npt.NDArray[Any]]

log = logging.getLogger(__name__)


def training_name(options: Mapping[str, Any], seed: int, matrices: Iterable[Any]) -> str:
    """A name for a training, by its options, seed and data: a checkpoint of another one is not taken up.

    Cost O(bytes of the data), by a checksum that reads several gigabytes per second.
    """
    arrays: list[npt.NDArray[Any]] = []
    for matrix in matrices:
        arrays += [matrix.data, matrix.indices, matrix.indptr] if sp.issparse(matrix) else [matrix]
    sums = [zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) for array in arrays]
    return hashlib.sha256(json.dumps([options, seed, sums], sort_keys=True).encode()).hexdigest()


@dataclass
class Checkpoints:
    """The checkpoints of one training in a folder, written from time to time.

    Parameters
    ----------
    directory : Path or None
        None keeps nothing.
    training : str
        Name of the training, from `training_name`.
    """

    directory: Path | None
    training: str = ""
    _last: float = field(default_factory=time.monotonic)
    _wait: float = 0.0

    @classmethod
    def of(cls, directory: Path | None, options: Mapping[str, Any], seed: int, matrices: Iterable[Any]) -> Checkpoints:
        """Those of the training with these options, seed and data, which are not read where nothing is kept."""
        return cls(directory, training_name(options, seed, matrices) if directory else "")

    def read(self, name: str = "state") -> dict[str, npt.NDArray[Any]] | None:
        """The arrays of a checkpoint; None where there is none that can be used."""
        if self.directory is None:
            return None
        path = self.directory / f"{name}.safetensors"
        if not path.is_file():
            return None
        try:
            arrays = {key: array.copy() for key, array in open_arrays(path).items()}
            digest = arrays.pop(DIGEST).tobytes()
        except (ArtifactDamaged, OSError, ValueError, KeyError, TypeError):
            digest, arrays = b"", {}
        if digest != self._digest(arrays):
            log.warning("%s is damaged or belongs to another training: it is ignored, and the work is repeated", path)
            return None
        return arrays

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint; never for more than a small share of the time."""
        return self.directory is not None and time.monotonic() - self._last >= max(self._wait, CHECKPOINT_SECONDS)

    def write(self, arrays: Arrays, name: str = "state") -> None:
        """Write a checkpoint, whole or not at all; another process may clear the folder meanwhile."""
        if self.directory is None:
            return
        start = time.monotonic()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(self.directory / f"{name}.safetensors") as draft:
                write_arrays(draft, {**arrays, DIGEST: np.frombuffer(self._digest(arrays), np.uint8)})
        except FileNotFoundError:
            log.warning(
                "%s was removed while a checkpoint was written: training continues without a checkpoint", self.directory
            )
        self._last = time.monotonic()
        self._wait = (self._last - start) / CHECKPOINT_SHARE

    def names(self, prefix: str) -> list[str]:
        """Names of the checkpoints that start so, in order."""
        return [] if self.directory is None else sorted(path.stem for path in self.directory.glob(f"{prefix}*"))

    def _digest(self, arrays: Arrays) -> bytes:
        found = hashlib.blake2b(self.training.encode(), digest_size=16)
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            found.update(f"{name} {array.dtype.str} {array.shape};".encode())
            found.update(array.reshape(-1).view(np.uint8).data)
        return found.digest()


class Pieces:
    """Finished pieces of a fit that consists of many independent ones, each a few arrays.

    Pieces wait in memory until a checkpoint is due; then all that wait go into one new file.
    """

    def __init__(self, checkpoints: Checkpoints, prefix: str = "pieces") -> None:
        self._checkpoints, self._prefix = checkpoints, prefix
        self._names = checkpoints.names(f"{prefix}-")
        self._waiting: dict[str, npt.NDArray[Any]] = {}
        self.done: dict[int, dict[str, npt.NDArray[Any]]] = {}
        for name in self._names:
            for key, array in (checkpoints.read(name) or {}).items():
                number, part = key.split(".", 1)
                self.done.setdefault(int(number), {})[part] = array

    def add(self, number: int, arrays: Arrays) -> None:
        """Take a finished piece."""
        if self._checkpoints.directory is None:
            return
        self._waiting |= {f"{number}.{part}": array for part, array in arrays.items()}
        if self._checkpoints.is_due():
            self._names.append(f"{self._prefix}-{len(self._names):06d}")
            self._checkpoints.write(self._waiting, self._names[-1])
            self._waiting = {}
