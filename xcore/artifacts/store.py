"""The artifact store: `<root>/<kind>/<id>/` holds an artifact's files and, written last, its manifest."""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.fs as pafs
from pydantic import ValidationError

from xcore.artifacts.identity import file_sha256
from xcore.artifacts.manifest import ArtifactRef, FileRecord, Manifest, git_commit, library_versions, now
from xcore.artifacts.meter import Meter
from xcore.artifacts.recipe import BuildContext, Recipe
from xcore.artifacts.schemas import KINDS, check_files
from xcore.components import Report, silent
from xcore.errors import ArtifactDamaged, ArtifactMissing, ConfigError

MANIFEST = "manifest.json"
STAGING = ".staging"
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

    Parameters
    ----------
    root : path or URI
    cache : folder for local copies; only used when the root is not local.
    """

    def __init__(self, root: str | Path, cache: Path | None = None) -> None:
        text = str(root)
        if "://" in text:
            self.filesystem, self.root = pafs.FileSystem.from_uri(text)
        else:
            self.filesystem, self.root = pafs.LocalFileSystem(), str(Path(text).absolute())
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self.cache = cache or Path(tempfile.gettempdir()) / "eyrie-cache"
        self._intact: dict[Path, tuple[int, int, int]] = {}

    def make(self, recipe: Recipe, report: Report = silent) -> MakeResult:
        """Open the recipe's artifact, or build and keep it if it is missing or damaged. Its inputs must be there."""
        if self.is_intact(recipe.ref):
            return MakeResult(self.open(recipe.ref), cached=True)
        inputs = {role: self.open(source.ref) for role, source in recipe.inputs.items()}
        scratch = self._staging_root / f"{recipe.kind}-{recipe.id}"
        with self._staging() as directory:
            with Meter() as meter:
                counts = recipe.build(BuildContext(inputs, recipe.options, recipe.rng(), report, directory, scratch))
            manifest = _manifest_of(recipe, directory, counts, meter)
            check_files(recipe.kind, directory)
            self._publish(manifest, directory)
        shutil.rmtree(scratch, ignore_errors=True)
        return MakeResult(self.open(recipe.ref), cached=False)

    def holds(self, ref: ArtifactRef) -> bool:
        """Whether the artifact has a manifest; its files are not looked at."""
        return bool(self.filesystem.get_file_info(self._path(ref, MANIFEST)).type == pafs.FileType.File)

    def is_intact(self, ref: ArtifactRef) -> bool:
        """Whether the artifact can be opened; every byte is checked."""
        try:
            self.open(ref)
        except ArtifactMissing:
            return False
        except ArtifactDamaged as damage:
            log.warning("%s: it will be made again", damage)
            return False
        return True

    def open(self, ref: ArtifactRef) -> Artifact:
        """Check every file against the manifest and return the artifact.

        Raises
        ------
        ArtifactMissing
            No manifest.
        ArtifactDamaged
            A file is missing or does not have the bytes that were written, or the manifest cannot be read.
        """
        manifest = self.manifest(ref)
        directory = Path(self._path(ref)) if self.is_local else self._fetch(manifest)
        for name, record in manifest.files.items():
            self._check_bytes(ref, directory / name, record)
        check_files(ref.kind, directory)
        return Artifact(manifest, directory)

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """Read an artifact's manifest."""
        try:
            with self.filesystem.open_input_stream(self._path(ref, MANIFEST)) as stream:
                return Manifest.model_validate_json(stream.read())
        except FileNotFoundError:
            raise ArtifactMissing(f"no artifact {ref} in {self.root}") from None
        except ValidationError as error:
            raise ArtifactDamaged(f"{ref}: its manifest cannot be read ({error.error_count()} problems)") from None

    def manifests(self) -> list[Manifest]:
        """All manifests, oldest first; unreadable ones are left out (see `verify`)."""
        found = []
        for ref in self.refs():
            try:
                found.append(self.manifest(ref))
            except ArtifactDamaged as damage:
                log.warning("%s", damage)
        return sorted(found, key=lambda manifest: (manifest.created, manifest.id))

    def refs(self) -> Iterator[ArtifactRef]:
        """Names of all artifacts, whether intact or not."""
        for kind in sorted(KINDS):
            for entry in self._folders(kind):
                ref = ArtifactRef(kind=kind, id=entry.base_name)
                if self.holds(ref):
                    yield ref

    def find(self, text: str) -> ArtifactRef:
        """The one artifact whose id starts with `text`, which may also be ``kind/id``."""
        matches = [ref for ref in self.refs() if ref.id.startswith(text) or str(ref).startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise ArtifactMissing(f"no artifact starts with {text!r} in {self.root}")
        raise ConfigError(f"{text!r} could be any of {', '.join(map(str, matches))}: give more of the id")

    def lineage(self, ref: ArtifactRef) -> list[Manifest]:
        """The manifest of an artifact and of all that it was made of, inputs first."""
        found: dict[str, Manifest] = {}

        def visit(ref: ArtifactRef) -> None:
            if ref.id not in found:
                manifest = self.manifest(ref)
                for source in manifest.inputs.values():
                    visit(source)
                found[ref.id] = manifest

        visit(ref)
        return list(found.values())

    def verify(self) -> dict[ArtifactRef, str | None]:
        """Check every artifact; the value is what is wrong with it, or None."""
        self._intact.clear()
        verdicts: dict[ArtifactRef, str | None] = {}
        for ref in self.refs():
            try:
                self.open(ref)
                verdicts[ref] = None
            except ArtifactDamaged as damage:
                verdicts[ref] = str(damage)
        return verdicts

    def unreferenced(self, kept: Iterable[str], older_than: timedelta) -> list[Manifest]:
        """Artifacts that none of the kept ids is, or was made of, and that are older than the given age."""
        manifests = {manifest.id: manifest for manifest in self.manifests()}
        reached: set[str] = set()
        waiting = [name for name in kept if name in manifests]
        while waiting:
            name = waiting.pop()
            if name not in reached and name in manifests:
                reached.add(name)
                waiting.extend(source.id for source in manifests[name].inputs.values())
        limit = now() - older_than
        return [manifest for manifest in manifests.values() if manifest.id not in reached and manifest.created <= limit]

    def leftovers(self, older_than: timedelta) -> list[str]:
        """Folders of writes that never finished, older than the given age."""
        limit = now() - older_than
        unfinished = [
            entry
            for kind in sorted(KINDS)
            for entry in self._folders(kind)
            if not self.holds(ArtifactRef(kind=kind, id=entry.base_name))
        ]
        return [entry.path for entry in (*self._folders(STAGING), *unfinished) if _changed_before(entry, limit)]

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
        selector = pafs.FileSelector(f"{self.root}/{name}", allow_not_found=True)
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
        (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1))
        self.filesystem.create_dir(self._path(manifest.ref), recursive=True)
        for name in (*manifest.files, MANIFEST):
            target = self._path(manifest.ref, name)
            if self.is_local:
                self.filesystem.move(str(directory / name), target)
            else:
                pafs.copy_files(
                    str(directory / name),
                    target,
                    source_filesystem=pafs.LocalFileSystem(),
                    destination_filesystem=self.filesystem,
                )

    def _fetch(self, manifest: Manifest) -> Path:
        """A local copy of a remote artifact; files that are there with the right bytes are not fetched again."""
        directory = self.cache / manifest.kind / manifest.id
        directory.mkdir(parents=True, exist_ok=True)
        for name, record in manifest.files.items():
            local = directory / name
            if local.is_file() and file_sha256(local) == record.sha256:
                continue
            partial = directory / f".{uuid.uuid4().hex}"
            try:
                pafs.copy_files(
                    self._path(manifest.ref, name),
                    str(partial),
                    source_filesystem=self.filesystem,
                    destination_filesystem=pafs.LocalFileSystem(),
                )
            except FileNotFoundError:
                raise ArtifactDamaged(f"{manifest.ref}: {name} is missing") from None
            partial.replace(local)
        return directory

    def _check_bytes(self, ref: ArtifactRef, path: Path, record: FileRecord) -> None:
        if not path.is_file():
            raise ArtifactDamaged(f"{ref}: {path.name} is missing")
        stat = path.stat()
        state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._intact.get(path) == state:
            return
        if stat.st_size != record.n_bytes or file_sha256(path) != record.sha256:
            raise ArtifactDamaged(f"{ref}: {path.name} does not have the bytes that were written")
        self._intact[path] = state


def _changed_before(entry: pafs.FileInfo, limit: datetime) -> bool:
    return entry.mtime is None or entry.mtime <= limit


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
        peak_memory_bytes=meter.peak_memory_bytes,
        created=now(),
        versions=library_versions(),
        git_commit=git_commit(),
    )
