"""Every way we know to damage an artifact ends in a clear error or in the same bytes again, never in another number."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xcore.artifacts import ArtifactRef, BuildContext, Manifest, Recipe, Store
from xcore.artifacts.identity import file_sha256
from xcore.artifacts.manifest import FileRecord
from xcore.artifacts.schemas import KINDS
from xcore.components import Component
from xcore.errors import ArtifactDamaged, ConfigError

Damage = Callable[[Path], object]
NOW = timedelta(0)


class Number(Component):
    value: int = 1


def write_predictions(context: BuildContext) -> dict[str, Any]:
    value = context.options.value
    table = pa.table({"labels": pa.array([[value]], pa.list_(pa.int32())), "scores": [[0.5]]})
    schema = pa.schema([("labels", pa.list_(pa.int32())), ("scores", pa.list_(pa.float32()))])
    pq.write_table(table.cast(schema), context.directory / "predictions.parquet")
    return {"rows": 1, "value": value, "unknown": float("nan")}


def predictions(value: int = 1, **inputs: Recipe) -> Recipe:
    return Recipe("predictions", write_predictions, Number(value=value), inputs)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def edited(**changes: Any) -> Damage:
    """Change fields of a manifest and leave the rest, as somebody with an editor would."""

    def damage(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def resealed(**changes: Any) -> Damage:
    """Change fields of a manifest and give it a digest that fits."""

    def damage(folder: Path) -> None:
        stated = json.loads((folder / "manifest.json").read_text()) | changes
        Manifest.model_validate(stated).write(folder / "manifest.json")

    return damage


def replaced(name: str, put: Callable[[Path], object]) -> Damage:
    """Put something else in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        put(folder / name)

    return damage


def link_to_a_copy(path: Path) -> None:
    """The right bytes, but somewhere else."""
    copy = path.parent.parent / f".copy-of-{path.name}"
    copy.write_bytes(b"elsewhere")
    path.symlink_to(copy)


def cut(name: str, length: int) -> Damage:
    return lambda folder: os.truncate(folder / name, length)


def flipped(name: str) -> Damage:
    def damage(folder: Path) -> None:
        whole = bytearray((folder / name).read_bytes())
        whole[len(whole) // 2] ^= 1
        (folder / name).write_bytes(whole)

    return damage


def swapped_with_another(folder: Path) -> None:
    other = Store(folder.parents[1]).make(predictions(2)).artifact.directory
    for name in ("predictions.parquet", "manifest.json"):
        shutil.copyfile(other / name, folder / name)


def unreadable_but_recorded(folder: Path) -> None:
    """A file that is no Parquet, with a manifest that fits it: only the kind's promise tells."""
    path = folder / "predictions.parquet"
    path.write_bytes(b"no table")
    record = FileRecord(sha256=file_sha256(path), n_bytes=path.stat().st_size)
    resealed(files={path.name: record.model_dump()})(folder)


MANIFEST, FILE = "manifest.json", "predictions.parquet"
RECORD = {"sha256": "ab" * 32, "n_bytes": 1}
DAMAGES: dict[str, tuple[Damage, str]] = {
    "file truncated": (cut(FILE, 100), "does not have the bytes"),
    "file emptied": (cut(FILE, 0), "does not have the bytes"),
    "file flipped": (flipped(FILE), "does not have the bytes"),
    "file deleted": (lambda folder: (folder / FILE).unlink(), "is missing"),
    "file is a folder": (replaced(FILE, Path.mkdir), "is a folder"),
    "file is a full folder": (
        replaced(FILE, lambda path: (path.mkdir(), (path / "x").touch())),
        "is a folder",
    ),
    "file is a pipe": (replaced(FILE, os.mkfifo), "is a named pipe"),
    "file is a link": (replaced(FILE, link_to_a_copy), "is a symbolic link"),
    "file is no table": (unreadable_but_recorded, "cannot be read"),
    "file unlisted": (lambda folder: (folder / "groups.parquet").touch(), "does not list it"),
    "folder unlisted": (lambda folder: (folder / "more").mkdir(), "does not list it"),
    "swapped": (swapped_with_another, "is that of predictions/"),
    "manifest truncated": (cut(MANIFEST, 50), "cannot be read"),
    "manifest emptied": (cut(MANIFEST, 0), "cannot be read"),
    "manifest not text": (lambda folder: (folder / MANIFEST).write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "manifest not an object": (lambda folder: (folder / MANIFEST).write_text("[1]"), "cannot be read"),
    "manifest nested": (lambda folder: (folder / MANIFEST).write_text("[" * 100_000), "cannot be read"),
    "manifest of long numbers": (lambda folder: (folder / MANIFEST).write_text("1" * 5000), "cannot be read"),
    "manifest is a folder": (replaced(MANIFEST, Path.mkdir), "is a folder"),
    "manifest is a pipe": (replaced(MANIFEST, os.mkfifo), "is a named pipe"),
    "manifest is a link": (replaced(MANIFEST, link_to_a_copy), "is a symbolic link"),
    "manifest is a dead link": (replaced(MANIFEST, lambda path: path.symlink_to("gone")), "is a symbolic link"),
    "manifest too large": (cut(MANIFEST, (1 << 26) + 1), "expected at most"),
    "kind": (edited(kind="model"), "is that of model/"),
    "unknown kind": (edited(kind="mystery"), "is that of mystery/"),
    "kind that is a path": (edited(kind="../x"), "kind: String should match"),
    "id": (edited(id="0" * 16), "is that of predictions/0000"),
    "id that is a path": (edited(id="../../../x"), "id: String should match"),
    "schema version": (edited(schema_version=99), "was changed"),
    "schema version, resealed": (resealed(schema_version=99), "the content of its manifest has the id"),
    "inputs": (edited(inputs={"model": {"kind": "model", "id": "0" * 16}}), "was changed"),
    "inputs, resealed": (
        resealed(inputs={"model": {"kind": "model", "id": "0" * 16}}),
        "the content of its manifest has the id",
    ),
    "inputs of a wrong type": (edited(inputs=[1]), "inputs: Input should"),
    "sources": (edited(sources={"a": RECORD}), "was changed"),
    "sources, resealed": (resealed(sources={"a": RECORD}), "the content of its manifest has the id"),
    "component": (edited(component="magic"), "was changed"),
    "options": (edited(options={"value": 2}), "was changed"),
    "options, resealed": (resealed(options={"value": 2}), "the content of its manifest has the id"),
    "seed": (edited(seed=1), "was changed"),
    "seed, resealed": (resealed(seed=1), "the content of its manifest has the id"),
    "seed of a wrong type": (edited(seed="much"), "seed: Input should"),
    "code": (edited(code={"xcore.more": "0" * 16}), "was changed"),
    "code, resealed": (resealed(code={"xcore.more": "0" * 16}), "the content of its manifest has the id"),
    "files": (edited(files={}), "was changed"),
    "no files, resealed": (resealed(files={}), r"lists no predictions\.parquet"),
    "file outside": (edited(files={"../../x": RECORD}), "files.*String should match"),
    "hidden file": (edited(files={".x": RECORD}), "files.*String should match"),
    "counts": (edited(counts={"rows": 7}), "was changed"),
    "counts that are no numbers": (edited(counts={"rows": float("nan")}), "cannot be read"),
    "seconds": (edited(seconds=0.0), "was changed"),
    "peak memory": (edited(peak_memory_bytes=0), "was changed"),
    "created": (edited(created="2000-01-01T00:00:00Z"), "was changed"),
    "created without a zone": (edited(created="2000-01-01T00:00:00"), "created: Input should"),
    "versions": (edited(versions={}), "was changed"),
    "commit": (edited(git_commit="none"), "was changed"),
    "digest": (edited(digest="0" * 64), "was changed"),
    "no digest": (edited(digest=""), "or has no digest"),
    "more fields": (edited(more=1), "more: Extra inputs"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_explained_and_made_good(store: Store, name: str) -> None:
    damage, says = DAMAGES[name]
    sound = store.make(predictions(3)).artifact.ref
    folder = store.make(predictions()).artifact.directory
    whole = (folder / FILE).read_bytes()
    damage(folder)

    store = Store(store.root)
    with pytest.raises(ArtifactDamaged, match=says) as caught:
        store.open(predictions().ref)
    assert predictions().id in str(caught.value)
    verdicts = store.verify()
    assert verdicts[sound] is None
    assert verdicts[predictions().ref] == str(caught.value)
    assert sound in [manifest.ref for manifest in store.manifests()]
    assert sound in [manifest.ref for manifest in store.unreferenced([], NOW)]
    assert store.find(sound.id[:8]) == sound
    assert store.leftovers(NOW) == []

    again = store.make(predictions())
    assert not again.cached
    assert (again.artifact.directory / FILE).read_bytes() == whole
    assert Store(store.root).verify()[predictions().ref] is None


def test_a_file_in_place_of_the_folder_is_made_good(store: Store) -> None:
    folder = store.make(predictions()).artifact.directory
    shutil.rmtree(folder)
    folder.write_text("a file")
    assert list(store.refs()) == []
    assert not store.make(predictions()).cached
    assert store.verify() == {predictions().ref: None}


def test_another_schema_version_is_explained_and_can_be_collected(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = predictions()
    ref = store.make(recipe).artifact.ref
    monkeypatch.setitem(KINDS, "predictions", replace(KINDS["predictions"], version=99))
    with pytest.raises(ArtifactDamaged, match="schema version 1, this code reads version 99"):
        store.open(ref)
    assert [manifest.ref for manifest in store.unreferenced([], NOW)] == [ref]
    assert predictions().id != ref.id


def test_collecting_spares_what_a_damaged_artifact_was_made_of(store: Store) -> None:
    inner = predictions(1)
    outer = predictions(2, first=inner)
    for step in outer.lineage():
        store.make(step)
    edited(counts={})(Path(store.root) / str(outer.ref))
    assert store.unreferenced([outer.id], NOW) == []
    assert store.unreferenced([], NOW) == []


def test_hidden_files_do_not_matter(store: Store) -> None:
    (store.make(predictions()).artifact.directory / ".DS_Store").touch()
    assert store.make(predictions()).cached


def test_folders_that_are_no_artifacts_are_named_and_left_alone(store: Store) -> None:
    made = store.make(predictions()).artifact
    for name in ("mystery/0123456789abcdef", "predictions/backup", "predictions/0123456789ABCDEF"):
        shutil.copytree(made.directory, Path(store.root) / name)
    assert list(store.refs()) == [made.ref]
    assert store.leftovers(NOW) == []
    names = [str(Path(path).relative_to(store.root)) for path in store.strangers()]
    assert sorted(names) == ["mystery", "predictions/0123456789ABCDEF", "predictions/backup"]


def test_a_local_copy_of_a_remote_artifact_is_made_good(tmp_path: Path) -> None:
    pafs = pytest.importorskip("pyarrow.fs")
    store = Store(tmp_path / "unused", cache=tmp_path / "cache")
    store.filesystem, store.root, store.is_local = pafs._MockFileSystem(), "bucket/store", False
    folder = store.make(predictions()).artifact.directory
    whole = (folder / FILE).read_bytes()
    puts: tuple[Callable[[Path], object], ...] = (Path.mkdir, os.mkfifo, link_to_a_copy, Path.touch)
    for put in puts:
        replaced(FILE, put)(folder)
        (folder / "groups.parquet").touch()
        assert (store.open(predictions().ref).directory / FILE).read_bytes() == whole
        assert sorted(path.name for path in folder.iterdir()) == [FILE]


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "", "0123", "0123456789ABCDEF", "0123456789abcdef\n"])
def test_an_id_cannot_be_a_path(name: str) -> None:
    assert ArtifactRef.of("model", name) is None
    with pytest.raises(ValueError, match="id"):
        ArtifactRef(kind="model", id=name)


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "", ".staging", "Model"])
def test_a_kind_cannot_be_a_path(name: str) -> None:
    assert ArtifactRef.of(name, "0123456789abcdef") is None


@pytest.mark.parametrize("uri", ["gopher://store", "://store"])
def test_an_impossible_root_is_explained(uri: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the root of a store"):
        Store(uri)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(options=st.dictionaries(st.text(), PLAIN, max_size=4), counts=st.dictionaries(st.text(), PLAIN, max_size=4))
def test_whatever_is_written_is_read_back_with_the_same_id(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], counts: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("manifest") / "manifest.json"
    facts = {"kind": "model", "id": "0" * 16, "schema_version": 1, "inputs": {}, "sources": {}, "component": "x"}
    costs = {"seconds": 0.1, "peak_memory_bytes": 1, "created": datetime.now(UTC), "versions": {}, "git_commit": None}
    manifest = Manifest.model_validate(
        facts | costs | {"options": options, "counts": counts, "seed": 0, "code": {}, "files": {}}
    )
    manifest = manifest.model_copy(update={"id": manifest.stated_id()})
    manifest.write(path)
    assert Manifest.read(path.read_bytes(), manifest.ref).options == options
