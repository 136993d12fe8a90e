"""The folder of one artifact on the local disk: what may lie in it, and whether its files have their bytes."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pyarrow as pa

from xcore.artifacts.identity import file_sha256
from xcore.artifacts.manifest import ArtifactRef, FileRecord, Manifest
from xcore.artifacts.schemas import check_files, schema_of
from xcore.errors import ArtifactDamaged, ArtifactMissing

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 26  # a study of ten thousand cells needs a tenth of it

_FORMS = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe"}


class IntactFiles:
    """Checks files against their records. A file that has not changed since its last check is not read again."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int, int]] = {}

    def forget(self) -> None:
        """Read every file again at its next check."""
        self._seen.clear()

    def check(self, manifest: Manifest, directory: Path) -> None:
        """Raise `ArtifactDamaged` unless the folder holds what the manifest and the kind promise, and nothing else."""
        try:
            _check_names(manifest, directory)
            for name, record in manifest.files.items():
                self._check_bytes(manifest.ref, directory / name, record)
        except FileNotFoundError:  # another process removes the artifact
            raise ArtifactDamaged(f"{manifest.ref}: its files are gone") from None
        try:
            check_files(manifest.kind, directory)
        except (pa.ArrowException, OSError) as error:
            raise ArtifactDamaged(f"{manifest.ref}: a file cannot be read: {error}") from None

    def _check_bytes(self, ref: ArtifactRef, path: Path, record: FileRecord) -> None:
        found = regular_file(ref, path)
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._seen.get(path) == state:
            return
        if found.st_size != record.n_bytes or file_sha256(path) != record.sha256:
            raise ArtifactDamaged(f"{ref}: {path.name} does not have the bytes that were written")
        self._seen[path] = state


def _check_names(manifest: Manifest, directory: Path) -> None:
    ref, promise = manifest.ref, schema_of(manifest.kind)
    if manifest.schema_version != promise.version:
        raise ArtifactDamaged(
            f"{ref}: it has schema version {manifest.schema_version}, this code reads version {promise.version}: "
            "make it again, or use the code that made it"
        )
    unlisted = [name for name in promise.files if name not in manifest.files]
    if unlisted:
        raise ArtifactDamaged(f"{ref}: its manifest lists no {unlisted[0]}; expected {', '.join(promise.files)}")
    strays = stray_files(manifest, directory)
    if strays:
        raise ArtifactDamaged(f"{ref}: {strays[0].name} lies in its folder, but its manifest does not list it")


def stray_files(manifest: Manifest, directory: Path) -> list[Path]:
    """What lies in an artifact's folder and is not listed.

    It counts as damage, since some files are optional and are used where they are there: a stray ``groups.parquet``
    would turn a dataset into another one. Hidden files do not count: no step reads them, and file systems, desktops
    and drafts make some.
    """
    known = {MANIFEST, *manifest.files}
    return sorted(path for path in directory.iterdir() if path.name not in known and not path.name.startswith("."))


def regular_file(ref: ArtifactRef, path: Path) -> os.stat_result:
    """The state of a file that may be opened; a link, a folder or a pipe (which would block) in its place is damage."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise ArtifactDamaged(f"{ref}: {path.name} is missing") from None
    if not stat.S_ISREG(found.st_mode):
        form = _FORMS.get(stat.S_IFMT(found.st_mode), "a special file")
        raise ArtifactDamaged(f"{ref}: {path.name} is {form}, expected a regular file")
    return found


def read_manifest(ref: ArtifactRef, path: Path) -> bytes:
    """The text of a local manifest."""
    if not os.path.lexists(path):
        raise ArtifactMissing(f"no artifact {ref} in {path.parents[2]}")
    try:
        check_size(ref, regular_file(ref, path).st_size)
        return path.read_bytes()
    except PermissionError:
        raise ArtifactDamaged(f"{ref}: there is no permission to read {path}") from None


def check_size(ref: ArtifactRef, n_bytes: int) -> None:
    """Raise `ArtifactDamaged` for a manifest that is too large to be one."""
    if n_bytes > LARGEST_MANIFEST:
        raise ArtifactDamaged(f"{ref}: its manifest has {n_bytes} bytes, expected at most {LARGEST_MANIFEST}")


def clear(path: Path) -> None:
    """Remove whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
