"""A work folder for tests, and the command line run in it as a person would."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SMALL = ("data.reader.n_train=400", "data.reader.n_test=100", "data.reader.n_labels=40", "data.reader.n_features=300")


class Workplace:
    """A work folder, and the command line run in it as a person would, in a process of its own."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        hidden = ("PREFECT_", "MLFLOW_TRACKING_URI", "EYRIE_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environment |= {"EYRIE_HOME": str(home), **environment}
        self.code = ROOT

    def start(
        self, *words: str, script: tuple[str, ...] = ("-m", "flows"), folder: Path | None = None
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *script, *words],
            cwd=folder or self.code,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *words: str, script: tuple[str, ...] = ("-m", "flows"), folder: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words, script=script, folder=folder)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def pipeline(self, *overrides: str) -> dict[str, Any]:
        done = self.run(*self.words(*overrides))
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary

    def words(self, *overrides: str) -> tuple[str, ...]:
        settings = [word for setting in (*SMALL, *overrides) for word in ("--set", setting)]
        return ("pipeline", "deployments/presets/demo.yaml", "--json", *settings)

    def use_code_copy(self, target: Path) -> Path:
        """Run from a copy of the source from now on, so that a test may edit it."""
        for name in ("flows", "tasks", "xcore", "deployments"):
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.code = target
        self.environment["PYTHONPATH"] = str(target)
        return target
