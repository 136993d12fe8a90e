"""Scores of files as an artifact of the store: killed, raced and repeated."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks import settings
from tasks.model_parts import parts_of
from tasks.score import deliver, open_scorer, scores_recipe
from tasks.thresholds import thresholds_recipe
from tests.small_models import LABELS, made_model, write_texts
from xcore.artifacts import Artifact, Recipe
from xcore.errors import ConfigError
from xcore.inference.batches import Batch
from xcore.inference.scorer import Cut
from xcore.inference.thresholds import LabelThresholds
from xcore.models.ova import Ova

ROOT = Path(__file__).parents[2]
ROWS, BLOCKS = 24_000, 2  # more than two megabytes of text: two whole blocks and a rest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EYRIE_STORE", raising=False)
    return tmp_path


def plan(folder: Path, n_rows: int = ROWS) -> Recipe:
    """Scores of a file of new rows by a small model, which is made if it is not there."""
    parts = parts_of(made_model(Ova(), "text", folder / "source").ref)
    path = folder / f"new-{n_rows}.jsonl"
    if not path.exists():
        write_texts(path, n_rows, seed=7)
    batch = Batch.model_validate({"reader": {"kind": "jsonl", "text": "text", "id": "id"}, "files": [path]})
    return scores_recipe(parts, batch, Cut(k=2), names=False, block_mb=1)


def kill_in_the_middle(folder: Path, blocks: int) -> int:
    words = [sys.executable, "-m", "tests.tasks.killed_scoring", str(folder), str(blocks)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=ROOT, env=environment, check=False, timeout=300).returncode


def test_a_killed_scoring_resumes_after_its_finished_blocks_to_the_same_bytes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = plan(home)
    undisturbed = settings.store().make(recipe).artifact
    assert undisturbed.manifest.counts["rows_from_before"] == 0
    assert undisturbed.manifest.counts["rows"] == ROWS

    monkeypatch.setenv("EYRIE_HOME", str(home / "killed"))
    assert kill_in_the_middle(home, 1) == -9
    assert kill_in_the_middle(home, 1) == -9
    (scratch,) = (home / "killed" / "store" / ".staging").glob("scores-*")
    assert len(list(scratch.glob("*.arrow"))) == BLOCKS
    resumed = settings.store().make(recipe).artifact
    assert 0 < resumed.manifest.counts["rows_from_before"] < ROWS
    assert resumed.manifest.files == undisturbed.manifest.files
    assert resumed.ref == undisturbed.ref
    assert not scratch.exists()
    assert settings.store().make(recipe).cached


def test_two_scorings_of_the_same_rows_at_the_same_time_both_succeed(home: Path) -> None:
    recipe = plan(home)
    made: list[Artifact] = []
    threads = [threading.Thread(target=lambda: made.append(settings.store().make(recipe).artifact)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[0].manifest.files == made[1].manifest.files


def test_the_files_content_decides_not_its_place(home: Path) -> None:
    recipe = plan(home, 20)
    known = recipe.id
    moved = (home / "new-20.jsonl").rename(home / "moved.jsonl")
    batch = Batch.model_validate({"reader": {"kind": "jsonl", "text": "text", "id": "id"}, "files": [moved]})
    parts = parts_of(recipe.inputs["model"].ref)
    assert scores_recipe(parts, batch, Cut(k=2), names=False, block_mb=1).id == known
    moved.write_text(moved.read_text().replace("ant1", "bee1", 1))
    assert scores_recipe(parts, batch, Cut(k=2), names=False, block_mb=1).id != known


def test_most_new_rows_get_the_label_they_were_written_for(home: Path) -> None:
    scores = settings.store().make(plan(home, 200)).artifact
    found = pq.read_table(scores.directory / "scores.parquet")
    best = [labels[0] for labels in found["labels"].to_pylist()]
    written = [json.loads(line)["labels"][0] for line in (home / "new-200.jsonl").read_text().splitlines()]
    assert sum(a == b for a, b in zip(best, written, strict=True)) > 180
    assert found["id"].to_pylist()[:2] == ["new-200-0", "new-200-1"]


def test_scores_are_delivered_whole_and_only_where_they_differ(home: Path) -> None:
    scores = settings.store().make(plan(home, 20)).artifact
    output = home / "out" / "scores.parquet"
    assert not deliver(scores, output)
    before = output.stat()
    assert not deliver(scores, output)
    assert (output.stat().st_ino, output.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    output.write_bytes(b"cut")
    assert deliver(scores, output), "a file was replaced, which people should be told"
    assert output.read_bytes() == (scores.directory / "scores.parquet").read_bytes()
    assert [path.name for path in output.parent.iterdir()] == ["scores.parquet"]


def test_a_model_of_an_older_version_is_explained(home: Path) -> None:
    model = made_model(Ova(), "text", home / "source")
    made = settings.store().open(model.ref)
    options = {"strength" if name == "ridge" else name: value for name, value in made.manifest.options.items()}
    older = made.manifest.model_copy(update={"options": options})
    older = older.model_copy(update={"id": older.stated_id()})
    folder = shutil.copytree(made.directory, made.directory.with_name(older.id))
    older.write(folder / "manifest.json")
    with pytest.raises(ConfigError, match=r"trained by code whose options differ: ova\.strength"):
        parts_of(older.ref)


def test_scores_cut_by_the_thresholds_of_labels(home: Path) -> None:
    parts = parts_of(made_model(Ova(), "text", home / "source", dev=0.3).ref)
    batch = Batch.model_validate(
        {"reader": {"kind": "jsonl", "text": "text", "id": "id"}, "files": [write_texts(home / "new.jsonl", 50, 7)]}
    )
    thresholds = thresholds_recipe(parts)
    values = LabelThresholds.load(settings.store().make(thresholds).artifact.directory).values
    found = {}
    for per_label in (False, True):
        cut = Cut(k=6, per_label=per_label)
        recipe = scores_recipe(parts, batch, cut, False, 1, thresholds=thresholds if per_label else None)
        table = pq.read_table(settings.store().make(recipe).artifact.directory / "scores.parquet")
        found[per_label] = [list(zip(row["labels"], row["scores"], strict=True)) for row in table.to_pylist()]
    numbers = dict(zip(LABELS, values.tolist(), strict=True))
    assert found[True] == [[one for one in row if one[1] >= numbers[one[0]]] for row in found[False]]
    assert sum(map(len, found[True])) < sum(map(len, found[False])) == 300


def test_thresholds_of_a_model_without_dev_rows_are_refused(home: Path) -> None:
    parts = parts_of(made_model(Ova(), "text", home / "source").ref)
    with pytest.raises(ConfigError, match=r"no dev split.*data\.holdout\.dev"):
        settings.store().make(thresholds_recipe(parts))
    inputs = {role: settings.store().open(recipe.ref) for role, recipe in parts.inputs().items()}
    with pytest.raises(ConfigError, match="no thresholds of labels"):
        open_scorer(parts.used, inputs).answer(pa.record_batch({"text": ["ant1"]}), Cut(per_label=True))
