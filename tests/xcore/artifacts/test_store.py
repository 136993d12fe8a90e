import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xcore.artifacts import ArtifactRef, BuildContext, KeptArtifact, Recipe, Store
from xcore.components import Component
from xcore.errors import ArtifactDamaged, ArtifactMissing, ConfigError

calls: list[str] = []


class Number(Component):
    value: int = 1


class FromFile(Component):
    path: Path
    scale: int = 1


def write_number(context: BuildContext) -> dict[str, int]:
    calls.append("number")
    draw = int(context.rng.integers(1000))
    (context.directory / "model.json").write_text(json.dumps({"value": context.options.value, "draw": draw}))
    context.report(1, 1)
    return {"value": context.options.value}


def add_one(context: BuildContext) -> dict[str, int]:
    calls.append("sum")
    value = json.loads((context.inputs["number"].directory / "model.json").read_text())["value"]
    (context.directory / "model.json").write_text(json.dumps({"value": value + context.options.value}))
    return {}


def read_file(context: BuildContext) -> dict[str, int]:
    (context.directory / "model.json").write_text(context.options.path.read_text())
    return {}


def fail_half_way(context: BuildContext) -> dict[str, int]:
    (context.directory / "model.json").write_text("{")
    raise RuntimeError("power cut")


def forget_a_file(context: BuildContext) -> dict[str, int]:
    return {}


def write_wrong_types(context: BuildContext) -> dict[str, int]:
    table = pa.table({"labels": [[1.5]], "scores": [[0.5]]})
    pq.write_table(table, context.directory / "predictions.parquet")
    return {}


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture(params=["local", "uri", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(tmp_path / "store")
    if request.param == "uri":
        return Store((tmp_path / "store").as_uri())
    pafs = pytest.importorskip("pyarrow.fs")
    store = Store(tmp_path / "unused", cache=tmp_path / "cache")
    store.filesystem, store.root, store.is_local = pafs._MockFileSystem(), "bucket/store", False
    return store


def number(value: int = 1, seed: int = 0) -> Recipe:
    return Recipe("model", write_number, Number(value=value), seed=seed)


def total(value: int = 1) -> Recipe:
    return Recipe("model", add_one, Number(value=10), {"number": number(value)})


def make_all(store: Store, recipe: Recipe) -> dict[str, bool]:
    return {step.name: store.make(step).cached for step in recipe.lineage()}


def test_a_step_is_made_once_and_found_afterwards(store: Store) -> None:
    assert make_all(store, total()) == {"write number": False, "add one": False}
    assert make_all(store, total()) == {"write number": True, "add one": True}
    assert calls == ["number", "sum"]
    result = store.open(total().ref)
    assert json.loads((result.directory / "model.json").read_text()) == {"value": 11}


def test_the_manifest_tells_how_an_artifact_was_made(store: Store) -> None:
    make_all(store, total())
    manifest = store.manifest(total().ref)
    assert manifest.inputs["number"] == number().ref
    assert manifest.options == {"value": 10}
    assert manifest.component == "add one"
    assert manifest.files["model.json"].n_bytes == len('{"value": 11}')
    assert manifest.peak_memory_bytes > 1e6
    assert manifest.seconds > 0
    assert [step.ref for step in store.lineage(total().ref)] == [number().ref, total().ref]


def test_a_failed_step_leaves_nothing(store: Store) -> None:
    recipe = Recipe("model", fail_half_way, Number())
    with pytest.raises(RuntimeError, match="power cut"):
        store.make(recipe)
    assert not store.holds(recipe.ref)
    assert list(store.refs()) == []
    assert store.leftovers(timedelta(0)) == []


def test_a_folder_without_a_manifest_does_not_exist_and_is_a_leftover(store: Store) -> None:
    store.make(number())
    store.filesystem.delete_file(f"{store.root}/{number().ref}/manifest.json")
    with pytest.raises(ArtifactMissing, match=number().id):
        store.open(number().ref)
    assert list(store.refs()) == []
    assert len(store.leftovers(timedelta(0))) == 1
    assert store.leftovers(timedelta(days=1)) == []


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "manifest"])
def test_a_damaged_artifact_is_noticed_and_made_again(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    path = store.make(number()).artifact.directory / "model.json"
    whole = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(whole[:-1])
    elif damage == "flipped":
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif damage == "missing":
        path.unlink()
    else:
        (path.parent / "manifest.json").write_text("{}")
    with pytest.raises(ArtifactDamaged, match=number().id):
        store.open(number().ref)
    assert [bool(problem) for problem in store.verify().values()] == [True]
    assert not store.make(number()).cached
    assert path.read_bytes() == whole


def test_damage_by_a_later_process_is_noticed(tmp_path: Path) -> None:
    path = Store(tmp_path).make(number()).artifact.directory / "model.json"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    assert not Store(tmp_path).is_intact(number().ref)


def test_the_kinds_promise_is_checked(store: Store) -> None:
    with pytest.raises(ArtifactDamaged, match=r"lacks model\.json"):
        store.make(Recipe("model", forget_a_file, Number()))
    with pytest.raises(ArtifactDamaged, match=r"column labels is list<.*double.*>, expected list<.*int32"):
        store.make(Recipe("predictions", write_wrong_types, Number()))
    assert list(store.refs()) == []


def test_racing_writers_of_one_id_both_succeed(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                store = Store(tmp_path)
                store.make(number())
                store.open(number().ref)
                store._publish(store.manifest(number().ref), copy_of(store))
                store.open(number().ref)
        except BaseException as error:
            problems.append(error)

    def copy_of(store: Store) -> Path:
        with store._staging() as directory:
            pass
        directory.mkdir()
        source = Path(store.root) / "model" / number().id / "model.json"
        (directory / "model.json").write_bytes(source.read_bytes())
        return directory

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_writer_keeps_what_another_one_has_finished_meanwhile(store: Store) -> None:
    first: list[Any] = []

    def overtaken(context: BuildContext) -> dict[str, int]:
        counts = write_number(context)
        if not first:
            first.append(None)
            first[0] = store.make(recipe).artifact.manifest
        return counts

    recipe = Recipe("model", overtaken, Number())
    second = store.make(recipe)
    assert calls == ["number", "number"]
    assert second.artifact.manifest == first[0]


def test_ids_depend_on_options_seed_inputs_and_kind_alone(tmp_path: Path) -> None:
    ids = {number().id, number(2).id, number(seed=1).id, total().id, total(2).id}
    assert len(ids) == 5
    assert number().id == Recipe("model", write_number, Number(value=1)).id


def test_a_source_file_counts_by_content_not_by_place(tmp_path: Path) -> None:
    def recipe(path: Path) -> Recipe:
        return Recipe("model", read_file, FromFile(path=path), sources=(path,))

    here, there = tmp_path / "a.txt", tmp_path / "b.txt"
    here.write_text("same")
    there.write_text("same")
    assert recipe(here).id == recipe(there).id
    there.write_text("other")
    assert recipe(here).id != recipe(there).id
    with pytest.raises(ConfigError, match=r"input file not found.*gone"):
        _ = recipe(tmp_path / "gone").id


def test_the_generator_depends_on_the_seed_only_within_a_kind() -> None:
    same = [number(value).rng().integers(1 << 30, size=4) for value in (1, 2)]
    np.testing.assert_array_equal(*same)
    assert (number(seed=1).rng().integers(1 << 30, size=4) != same[0]).any()


def test_unreferenced_spares_what_kept_results_were_made_of(store: Store) -> None:
    make_all(store, total())
    store.make(number(5))
    now = timedelta(0)
    assert [m.ref for m in store.unreferenced([total().id], now)] == [number(5).ref]
    assert store.unreferenced([total().id], timedelta(hours=1)) == []
    assert len(store.unreferenced([], now)) == 3
    store.remove(number(5).ref)
    assert not store.holds(number(5).ref)
    assert store.unreferenced([total().id], now) == []


def test_find_accepts_a_beginning_and_refuses_ambiguity(store: Store) -> None:
    make_all(store, total())
    assert store.find(number().id[:6]) == number().ref
    assert store.find(str(total().ref)) == total().ref
    with pytest.raises(ConfigError, match="could be any of"):
        store.find("model/")
    with pytest.raises(ArtifactMissing, match="no artifact starts with 'zz'"):
        store.find("zz")


def test_a_kept_artifact_serves_as_input_but_cannot_be_made(store: Store) -> None:
    store.make(number())
    kept = KeptArtifact.of(number().ref)
    made = store.make(Recipe("model", add_one, Number(value=10), {"number": kept}))
    assert made.artifact.ref == total().ref
    with pytest.raises(ArtifactMissing):
        store.make(KeptArtifact.of(ArtifactRef(kind="model", id="0" * 16)))


class FailingDisk:
    """A file system whose operation of some name fails after it has worked for a number of times."""

    def __init__(self, disk: Any, operation: str, n_worked: int) -> None:
        self._disk, self._operation, self._left = disk, operation, n_worked

    def __getattr__(self, name: str) -> Any:
        if name == self._operation:
            if not self._left:
                raise OSError("power cut")
            self._left -= 1
        return getattr(self._disk, name)


@pytest.mark.parametrize("n_moved", [0, 1, 2])
def test_a_write_that_ends_at_any_point_leaves_no_artifact_or_a_whole_one(tmp_path: Path, n_moved: int) -> None:
    store = Store(tmp_path)
    store.filesystem = FailingDisk(store.filesystem, "move", n_moved)
    if n_moved < 2:
        with pytest.raises(OSError, match="power cut"):
            store.make(number())
    else:
        store.make(number())
    later = Store(tmp_path)
    assert later.holds(number().ref) == later.is_intact(number().ref) == (n_moved == 2)
    assert later.make(number()).cached == (n_moved == 2)


def test_a_removal_that_fails_half_way_leaves_no_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.make(number())
    store.filesystem = FailingDisk(store.filesystem, "delete_dir", 0)
    with pytest.raises(OSError, match="power cut"):
        store.remove(number().ref)
    assert not Store(tmp_path).holds(number().ref)


def test_verify_reads_every_byte_again_even_if_a_file_looks_unchanged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.make(number()).artifact.directory / "model.json"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.is_intact(number().ref)  # the price of not reading it again
    assert "does not have the bytes" in str(store.verify()[number().ref])


def test_the_code_of_a_step_is_part_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = number().id
    monkeypatch.setattr(Recipe, "code", {"some.module": "0123456789abcdef"})
    assert number().id != before
