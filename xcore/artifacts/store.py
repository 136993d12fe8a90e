"""The artifact store: `<root>/<kind>/<id>/` holds an artifact's files and, written last, its manifest."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from xcore.artifacts.folder import MANIFEST, IntactFiles, check_size, clear, read_manifest, stray_files
from xcore.artifacts.identity import file_sha256
from xcore.artifacts.lineage import inputs_first
from xcore.artifacts.manifest import ArtifactRef, FileRecord, Manifest, git_commit, library_versions, now
from xcore.artifacts.meter import Meter
from xcore.artifacts.recipe import BuildContext, Recipe
from xcore.artifacts.schemas import KINDS, check_files
from xcore.components import Report, silent
from xcore.errors import ArtifactDamaged, ArtifactError, ArtifactMissing, ConfigError
from xcore.files import replacing

STAGING = ".staging"
UPLOAD_BYTES = 1 << 23
REREAD_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """An artifact that was opened and found intact; its files lie in a local folder."""

    manifest: Manifest
    directory: Path

    @property
    def ref(self) -> ArtifactRef:
        return self.manifest.ref


@dataclass(frozen=True)
class MakeResult:
    """The outcome of `Store.make`: the artifact, and whether it had been there already."""

    artifact: Artifact
    cached: bool


class Store:
    """Artifacts below one root: a local folder, or any URI that `pyarrow.fs` knows.

    Files are written first and the manifest last, so a folder without a manifest does not exist to anyone. On a disk
    every file appears by a rename, on an object store by one put: two writers of one id put the same bytes in place.
    Their manifests differ in times. The second writer keeps the first one's where it finds it.

    Parameters
    ----------
    root : path or URI
    cache : folder for local copies; only used when the root is not local.
    """

    def __init__(self, root: str | Path, cache: Path | None = None) -> None:
        text = str(root)
        if "://" in text:
            self.filesystem, self.root = _remote(text)
        else:
            self.filesystem, self.root = pafs.LocalFileSystem(), str(Path(text).absolute())
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self.cache = cache or Path(tempfile.gettempdir()) / "eyrie-cache"
        self._intact = IntactFiles()

    def make(self, recipe: Recipe, report: Report = silent) -> MakeResult:
        """Open the recipe's artifact, or build and keep it if it is missing or damaged. Its inputs must be there."""
        found = self._intact_artifact(recipe.ref)
        if found:
            return MakeResult(found, cached=True)
        inputs = {role: self.open(source.ref) for role, source in recipe.inputs.items()}
        scratch = self._staging_root / f"{recipe.kind}-{recipe.id}"
        with self._staging() as directory:
            with Meter() as meter:
                counts = recipe.build(BuildContext(inputs, recipe.options, recipe.rng(), report, directory, scratch))
            manifest = _manifest_of(recipe, directory, counts, meter)
            check_files(recipe.kind, directory)
            if not self._was_published(recipe.ref):
                self._publish(manifest, directory)
        shutil.rmtree(scratch, ignore_errors=True)
        return MakeResult(self.open(recipe.ref), cached=False)

    def _was_published(self, ref: ArtifactRef) -> bool:
        """Whether another writer has finished the artifact meanwhile: what others read already is not replaced."""
        try:
            self.open(ref)
        except (ArtifactMissing, ArtifactDamaged):
            return False
        return True

    def holds(self, ref: ArtifactRef) -> bool:
        """Whether anything stands where the artifact's manifest belongs; it is not looked at."""
        if self.is_local:
            return os.path.lexists(self._path(ref, MANIFEST))
        return bool(self.filesystem.get_file_info(self._path(ref, MANIFEST)).type != pafs.FileType.NotFound)

    def is_intact(self, ref: ArtifactRef) -> bool:
        """Whether the artifact can be opened; every byte is checked."""
        return self._intact_artifact(ref) is not None

    def _intact_artifact(self, ref: ArtifactRef) -> Artifact | None:
        try:
            return self.open(ref)
        except ArtifactMissing:
            return None
        except ArtifactDamaged as damage:
            log.warning("%s: it will be made again", damage)
            return None

    def open(self, ref: ArtifactRef) -> Artifact:
        """Check the manifest against the artifact's name and every file against the manifest; return the artifact.

        Raises
        ------
        ArtifactMissing
            No manifest.
        ArtifactDamaged
            The manifest cannot be read, was changed, or belongs elsewhere; the artifact has another schema version; a
            file is missing, is not listed, is no regular file, or does not have the bytes that were written.
        """
        manifest = self.manifest(ref)
        directory = Path(self._path(ref)) if self.is_local else self._fetch(manifest)
        self._intact.check(manifest, directory)
        return Artifact(manifest, directory)

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """Read an artifact's manifest, and check that it is the one that was written for this artifact.

        An object store is asked for the size first and for the bytes then. If a writer replaces the manifest between
        the two, a mixture of both is read. It fails the check, and is read again.
        """
        for pause in () if self.is_local else REREAD_PAUSES:
            try:
                return Manifest.read(self._manifest_text(ref), ref)
            except ArtifactDamaged:
                time.sleep(pause)
        return Manifest.read(self._manifest_text(ref), ref)

    def _manifest_text(self, ref: ArtifactRef) -> bytes:
        path = self._path(ref, MANIFEST)
        if self.is_local:
            return read_manifest(ref, Path(path))
        found = self.filesystem.get_file_info(path)
        if found.type == pafs.FileType.NotFound:
            raise ArtifactMissing(f"no artifact {ref} in {self.root}")
        if found.type != pafs.FileType.File:
            raise ArtifactDamaged(f"{ref}: {MANIFEST} is not a file")
        check_size(ref, found.size)
        with self.filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def manifests(self) -> list[Manifest]:
        """All manifests, oldest first; what is wrong with others is logged (see also `verify`)."""
        found, _ = self._read_all()
        return sorted(found, key=lambda manifest: (manifest.created, manifest.id))

    def _read_all(self) -> tuple[list[Manifest], list[ArtifactRef]]:
        """All manifests, and the names of those that cannot be used: one odd manifest must not hide the others."""
        found, damaged = [], []
        for ref in self.refs():
            try:
                found.append(self.manifest(ref))
            except ArtifactMissing:  # removed meanwhile
                continue
            except (ArtifactDamaged, OSError) as problem:
                log.warning("%s", problem)
                damaged.append(ref)
        return found, damaged

    def refs(self) -> Iterator[ArtifactRef]:
        """Names of all artifacts, whether intact or not."""
        for kind in sorted(KINDS):
            for entry in self._folders(kind):
                ref = ArtifactRef.of(kind, entry.base_name)
                if ref and self.holds(ref):
                    yield ref

    def strangers(self) -> list[str]:
        """Folders below the root that no artifact of a known kind can have; nobody reads or removes them."""
        kinds = [entry for entry in self._folders("") if not entry.base_name.startswith(".")]
        unknown = [entry.path for entry in kinds if entry.base_name not in KINDS]
        known = [entry.base_name for entry in kinds if entry.base_name in KINDS]
        misnamed = [
            entry.path for kind in known for entry in self._folders(kind) if not ArtifactRef.of(kind, entry.base_name)
        ]
        return unknown + misnamed

    def find(self, text: str) -> ArtifactRef:
        """The one artifact with an id that starts with `text`. The form ``kind/id`` is accepted too."""
        matches = [ref for ref in self.refs() if ref.id.startswith(text) or str(ref).startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise ArtifactMissing(f"no artifact starts with {text!r} in {self.root}")
        raise ConfigError(f"{text!r} could be any of {', '.join(map(str, matches))}: give more of the id")

    def lineage(self, ref: ArtifactRef) -> list[Manifest]:
        """The manifest of an artifact and of all that it was made of, inputs first."""
        known: dict[ArtifactRef, Manifest] = {}

        def inputs_of(ref: ArtifactRef) -> Iterable[ArtifactRef]:
            known[ref] = self.manifest(ref)
            return known[ref].inputs.values()

        return [known[step] for step in inputs_first(ref, inputs_of, str)]

    def verify(self) -> dict[ArtifactRef, str | None]:
        """Check every artifact; the value is what is wrong with it, or None."""
        self._intact.forget()
        verdicts: dict[ArtifactRef, str | None] = {}
        for ref in self.refs():
            try:
                self.open(ref)
                verdicts[ref] = None
            except ArtifactMissing:  # removed meanwhile
                continue
            except (ArtifactError, OSError) as damage:
                verdicts[ref] = str(damage)
        return verdicts

    def unreferenced(self, kept: Iterable[str], older_than: timedelta) -> list[Manifest]:
        """Artifacts that none of the kept ids is, or was made of, and that are older than the given age.

        An artifact with a damaged manifest is kept, because it may still be needed. So are the inputs that can still be
        read from the manifest.
        """
        found, damaged = self._read_all()
        inputs = {manifest.id: [source.id for source in manifest.inputs.values()] for manifest in found}
        inputs |= {ref.id: self._named_inputs(ref) for ref in damaged}
        reached: set[str] = set()
        waiting = [*kept, *(ref.id for ref in damaged)]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(inputs.get(name, ()))
        limit = now() - older_than
        spare = [manifest for manifest in found if manifest.id not in reached and manifest.created <= limit]
        return sorted(spare, key=lambda manifest: (manifest.created, manifest.id))

    def _named_inputs(self, ref: ArtifactRef) -> list[str]:
        """Ids of the inputs that can still be read from a damaged manifest."""
        try:
            inputs = json.loads(self._manifest_text(ref))["inputs"]
            return [str(source["id"]) for source in inputs.values()]
        except (ArtifactError, OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return []

    def leftovers(self, older_than: timedelta) -> list[str]:
        """Folders of writes that never finished, older than the given age."""
        limit = now() - older_than
        unfinished = [
            entry
            for kind in sorted(KINDS)
            for entry in self._folders(kind)
            if (ref := ArtifactRef.of(kind, entry.base_name)) and not self.holds(ref)
        ]
        return [entry.path for entry in (*self._folders(STAGING), *unfinished) if self._is_older(entry, limit)]

    def _is_older(self, entry: pafs.FileInfo, limit: datetime) -> bool:
        """Whether nothing in a folder has changed since. Folders of an object store have no time: their files do."""
        if entry.mtime is not None:
            return bool(entry.mtime <= limit)
        inside = self.filesystem.get_file_info(pafs.FileSelector(entry.path, recursive=True, allow_not_found=True))
        return all(found.mtime is None or found.mtime <= limit for found in inside)

    def remove(self, ref: ArtifactRef) -> None:
        """Remove an artifact: the manifest first, so that it is gone at once for everyone."""
        self.filesystem.delete_file(self._path(ref, MANIFEST))
        self.remove_folder(self._path(ref))

    def remove_folder(self, path: str) -> None:
        """Remove one of the `leftovers`."""
        self.filesystem.delete_dir(path)

    def _path(self, ref: ArtifactRef, *more: str) -> str:
        return "/".join((self.root, ref.kind, ref.id, *more))

    @property
    def _staging_root(self) -> Path:
        """On the root's own disk where the root is local, so that a rename publishes."""
        return (Path(self.root) if self.is_local else self.cache) / STAGING

    def _folders(self, name: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(f"{self.root}/{name}".rstrip("/"), allow_not_found=True)
        entries = [entry for entry in self.filesystem.get_file_info(selector) if entry.type == pafs.FileType.Directory]
        return sorted(entries, key=lambda entry: str(entry.path))

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """An empty local folder for the files of one artifact."""
        directory = self._staging_root / uuid.uuid4().hex
        directory.mkdir(parents=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _publish(self, manifest: Manifest, directory: Path) -> None:
        manifest.write(directory / MANIFEST)
        if self.is_local:
            self._make_room(manifest)
        self.filesystem.create_dir(self._path(manifest.ref), recursive=True)
        for name in (*manifest.files, MANIFEST):
            target = self._path(manifest.ref, name)
            if self.is_local:
                self.filesystem.move(str(directory / name), target)
            else:
                self._upload(directory / name, target)

    def _upload(self, path: Path, target: str) -> None:
        """Put a file into the object store. `pyarrow.fs.copy_files` passes over a refused upload without an error."""
        stream = self.filesystem.open_output_stream(target)
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream, UPLOAD_BYTES)
        stream.close()  # not after an error: closing would complete a part

    def _make_room(self, manifest: Manifest) -> None:
        """Remove what would be in the way of an artifact that was damaged and is made again."""
        folder = Path(self._path(manifest.ref))
        if os.path.lexists(folder) and not folder.is_dir():
            clear(folder)
        if folder.is_dir():
            names = (*manifest.files, MANIFEST)
            blocked = [folder / name for name in names if (folder / name).is_dir()]
            for path in (*stray_files(manifest, folder), *blocked):
                clear(path)

    def _fetch(self, manifest: Manifest) -> Path:
        """A local copy of a remote artifact; files that are there with the right bytes are not fetched again."""
        directory = self.cache / manifest.kind / manifest.id
        directory.mkdir(parents=True, exist_ok=True)
        for stray in stray_files(manifest, directory):
            clear(stray)
        for name, record in manifest.files.items():
            local = directory / name
            if local.is_symlink() or not local.is_file():
                clear(local)
            elif file_sha256(local) == record.sha256:
                continue
            with replacing(local) as draft:
                self._download(manifest.ref, name, draft)
        return directory

    def _download(self, ref: ArtifactRef, name: str, target: Path) -> None:
        try:
            pafs.copy_files(
                self._path(ref, name),
                str(target),
                source_filesystem=self.filesystem,
                destination_filesystem=pafs.LocalFileSystem(),
            )
        except FileNotFoundError:
            raise ArtifactDamaged(f"{ref}: {name} is missing") from None


def _remote(uri: str) -> tuple[pafs.FileSystem, str]:
    try:
        filesystem, root = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"{uri!r} cannot be the root of a store: {error}. Expected a folder, or a URI such as s3://bucket/store"
        ) from None
    return filesystem, root


def _manifest_of(recipe: Recipe, directory: Path, counts: Mapping[str, object], meter: Meter) -> Manifest:
    return Manifest(
        kind=recipe.kind,
        id=recipe.id,
        schema_version=KINDS[recipe.kind].version,
        inputs={role: source.ref for role, source in recipe.inputs.items()},
        sources=recipe.source_records,
        component=recipe.name,
        options=recipe.options.options(),
        seed=recipe.seed,
        code=recipe.code,
        files={
            path.name: FileRecord(sha256=file_sha256(path), n_bytes=path.stat().st_size)
            for path in sorted(directory.iterdir())
        },
        counts=counts,
        seconds=meter.seconds,
        compile_seconds=meter.compile_seconds,
        peak_memory_bytes=meter.peak_memory_bytes,
        created=now(),
        versions=library_versions(),
        git_commit=git_commit(),
    )
