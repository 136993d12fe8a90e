"""What is written down about an artifact, beside its files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from xcore.artifacts.identity import ID_LENGTH, artifact_id, json_sha256
from xcore.errors import ArtifactDamaged

KIND_PATTERN = r"^[a-z][a-z0-9-]*$"
ID_PATTERN = rf"^[0-9a-f]{{{ID_LENGTH}}}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
# No separators, and no leading dot: neither another folder nor a hidden file.
FileName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
LIBRARIES = ("numpy", "scipy", "pyarrow", "numba", "scikit-learn", "torch")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArtifactRef(_Record):
    """The name of an artifact: all that steps pass to one another. It is also a path below the store's root."""

    kind: str = Field(pattern=KIND_PATTERN)
    id: str = Field(pattern=ID_PATTERN)

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"

    @classmethod
    def of(cls, kind: str, id: str) -> ArtifactRef | None:
        """The artifact of a kind and id that come from outside; None where there can be none of that name."""
        try:
            return cls(kind=kind, id=id)
        except ValidationError:
            return None


class FileRecord(_Record):
    """One file of an artifact, or one source file that went into it."""

    sha256: str = Field(pattern=SHA256_PATTERN)
    n_bytes: int = Field(ge=0)


class Manifest(_Record):
    """How an artifact was made, of what, and what it holds.

    `id` is a hash of what the manifest states about the making, and `digest` is one of all it states, results and
    costs included. `read` computes both again. They guard against accidents and edits, not against somebody who can
    compute them too.
    """

    kind: str = Field(pattern=KIND_PATTERN)
    id: str = Field(pattern=ID_PATTERN)
    schema_version: int
    inputs: Mapping[str, ArtifactRef]
    sources: Mapping[str, FileRecord]
    component: str
    options: Mapping[str, Any]
    seed: int
    code: Mapping[str, str]
    files: Mapping[FileName, FileRecord]
    counts: Mapping[str, Any]
    seconds: float
    compile_seconds: float = 0.0  # not among the seconds
    peak_memory_bytes: int
    created: AwareDatetime
    versions: Mapping[str, str]
    git_commit: str | None
    digest: str = ""

    @property
    def ref(self) -> ArtifactRef:
        return ArtifactRef(kind=self.kind, id=self.id)

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files.values())

    def stated_id(self) -> str:
        """The id that follows from what the manifest states."""
        return artifact_id(
            self.kind,
            self.schema_version,
            {role: source.id for role, source in self.inputs.items()},
            {path: record.sha256 for path, record in self.sources.items()},
            self.options,
            self.seed,
            self.code,
        )

    def write(self, path: Path) -> None:
        """Write the manifest with its digest."""
        plain = json.loads(self.model_dump_json(exclude={"digest"}))
        path.write_text(json.dumps(plain | {"digest": json_sha256(plain)}, indent=1))

    @classmethod
    def read(cls, text: bytes, ref: ArtifactRef) -> Manifest:
        """Read what `write` wrote in the folder of an artifact.

        Raises
        ------
        ArtifactDamaged
            It is no manifest, it was edited, or it belongs to another artifact.
        """
        try:
            plain = json.loads(text)
            manifest = cls.model_validate(plain)
            digest = json_sha256({name: value for name, value in plain.items() if name != "digest"})
            stated = manifest.stated_id()
        except ValidationError as error:
            raise ArtifactDamaged(f"{ref}: its manifest cannot be read: {_first_problem(error)}") from None
        except (ValueError, RecursionError) as error:  # what is no JSON, or JSON that no manifest holds
            raise ArtifactDamaged(f"{ref}: its manifest cannot be read: {str(error)[:200]}") from None
        if manifest.ref != ref:
            raise ArtifactDamaged(f"{ref}: its manifest is that of {manifest.ref}; a folder was copied or renamed")
        if manifest.digest != digest:
            raise ArtifactDamaged(f"{ref}: its manifest was changed after it was written, or has no digest")
        if stated != manifest.id:
            raise ArtifactDamaged(f"{ref}: the content of its manifest has the id {stated}")
        return manifest


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {problem['msg']}"


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
    here, code = Path(__file__).parent, (":/xcore", ":/tasks", ":/flows")  # other files may be edited, as docs say

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        edited = git("status", "--porcelain", "--untracked-files=no", "--", *code)
        return git("rev-parse", "HEAD") + ("+changes" if edited else "")
    except (OSError, subprocess.CalledProcessError):
        return None
