"""What tests of steps share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasks import settings


@pytest.fixture
def registry_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, beside a work folder whose MLflow registers and serves models in this process."""
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "EYRIE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", settings.tracking_uri())
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    monkeypatch.setattr(sys, "path", list(sys.path))  # MLflow puts the model's own code there
    return tmp_path
