"""A model of bags through the pipeline: what is stored, and what people see of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tests.xcore.data.test_images import pair
from xcore.artifacts import Artifact
from xcore.report import render_report
from xcore.views.base import view_of


@pytest.fixture
def lineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    """Images of two classes, one bright above and one below, in bags of three."""
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    rng, classes = np.random.default_rng(0), np.arange(120) % 2
    images = rng.integers(0, 60, (120, 4, 3)).astype(np.uint8)
    images[classes == 0, :2] += 150
    images[classes == 1, 2:] += 150
    params = PipelineParams.model_validate(
        {
            "data": {"reader": {"kind": "idx"}, "train": [pair(tmp_path, images, classes)]},
            "grouping": {"kind": "random", "size": 3},
            "model": {"kind": "co-attention", "width": 8, "loss": "count"},
            "evaluation": {"ks": [1], "n_bootstrap": 0},
        }
    )
    store = settings.store()
    return [store.make(recipe).artifact for recipe in plan_pipeline(params).evaluation.lineage()]


def of_kind(lineage: list[Artifact], kind: str) -> Artifact:
    return next(artifact for artifact in lineage if artifact.ref.kind == kind)


def test_the_run_keeps_and_shows_which_row_explains_a_label(lineage: list[Artifact], tmp_path: Path) -> None:
    model = of_kind(lineage, "model")
    explained = pq.read_table(model.directory / "explained.parquet")
    assert explained.num_rows == model.manifest.counts["bags"] == 36
    members = pq.read_table(of_kind(lineage, "groups").directory / "groups.parquet")["members"].to_pylist()
    for bag in explained.to_pylist():
        assert set(bag["rows"]) <= set(members[bag["bag"]])
    assert model.manifest.counts["explained_precision"] >= 0.9
    assert "explained by a row that carries them" in view_of("model").sentence(model)
    assert view_of("evaluation").facts(lineage[-1])["metrics"]["accuracy"] >= 0.9
    page = tmp_path / "report.html"
    render_report(lineage, page)
    assert "Which row explains a label" in page.read_text()


def test_embeddings_of_images_are_drawn_as_pictures(lineage: list[Artifact], tmp_path: Path) -> None:
    embeddings = of_kind(lineage, "label-embeddings")
    view_of("label-embeddings").draw(embeddings, tmp_path)
    (picture,) = tmp_path.glob("label_embeddings_*.png")
    assert picture.stat().st_size > 1000
