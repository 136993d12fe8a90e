"""The store's commands beside artifacts that cannot be used."""

import argparse
import json
import os
from pathlib import Path

import pytest

from flows.store_commands import list_artifacts, verify_artifacts
from tasks import settings
from tests.small_models import made_model
from xcore.artifacts import Recipe
from xcore.models.ova import Ova


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EYRIE_STORE", raising=False)
    return made_model(Ova(), "sparse", tmp_path)


@pytest.mark.parametrize("odd", ["text", "folder", "pipe"])
def test_one_odd_manifest_does_not_hide_the_others(
    model: Recipe, odd: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(settings.store().root) / str(model.ref) / "manifest.json"
    path.unlink()
    {"text": Path.touch, "folder": Path.mkdir, "pipe": os.mkfifo}[odd](path)
    (Path(settings.store().root) / "mystery").mkdir()

    assert list_artifacts(argparse.Namespace(json=True)) == 0
    assert [entry["kind"] for entry in json.loads(capsys.readouterr().out)] == ["dataset"]
    assert model.id in caplog.text
    assert verify_artifacts(argparse.Namespace()) == 2
    out = capsys.readouterr().out
    assert f"damaged: {model.ref}" in out
    assert "not an artifact, left alone" in out
    assert "2 artifacts checked, 1 damaged" in out
