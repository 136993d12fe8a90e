"""``mlflow server`` with another application around its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

APPLICATION, HOST, PORT = "_EYRIE_MLFLOW_APPLICATION", "_EYRIE_MLFLOW_HOST", "_EYRIE_MLFLOW_PORT"


def run_mlflow(words: list[str], factory: str, python: Sequence[str]) -> None:
    """Run ``mlflow`` with these words; where it would serve its own application, it serves what `factory` makes.

    MLflow has no option for that. Variables tell the factory which application it is, and where it listens. `python`
    are the words with which the interpreter of the server runs the module uvicorn.
    """
    import mlflow.server
    from mlflow.cli import cli

    build = mlflow.server._build_uvicorn_command

    def ours(options: Any, host: str, port: int, workers: int, application: str, *others: Any) -> Any:
        os.environ |= {APPLICATION: application, HOST: host, PORT: str(port)}
        interpreter, _, *command = build(options, host, port, workers, factory, others[0], True)  # -m uvicorn ...
        return [interpreter, *python, *command]

    mlflow.server._build_uvicorn_command = ours
    cli(words)
