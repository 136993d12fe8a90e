"""What is written down about an artifact, beside its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

LIBRARIES = ("numpy", "scipy", "pyarrow", "numba", "scikit-learn", "torch")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArtifactRef(_Record):
    """The name of an artifact: all that steps pass to one another."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"


class FileRecord(_Record):
    """One file of an artifact, or one source file that went into it."""

    sha256: str
    n_bytes: int


class Manifest(_Record):
    """How an artifact was made, of what, and what it holds."""

    kind: str
    id: str
    schema_version: int
    inputs: Mapping[str, ArtifactRef]
    sources: Mapping[str, FileRecord]
    component: str
    options: Mapping[str, Any]
    seed: int
    code: Mapping[str, str]
    files: Mapping[str, FileRecord]
    counts: Mapping[str, Any]
    seconds: float
    peak_memory_bytes: int
    created: datetime
    versions: Mapping[str, str]
    git_commit: str | None

    @property
    def ref(self) -> ArtifactRef:
        return ArtifactRef(kind=self.kind, id=self.id)

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files.values())


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


@cache
def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that results may depend on."""
    installed = {dist.name.lower() for dist in metadata.distributions()}
    return {"python": sys.version.split()[0]} | {
        name: metadata.version(name) for name in LIBRARIES if name in installed
    }


@cache
def git_commit() -> str | None:
    """The commit of the source tree this code runs from, marked ``+changes`` if it was edited; None outside git."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
