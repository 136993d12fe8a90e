"""The dashboards of a work folder: a Prefect server and an MLflow server on loopback, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tasks import settings
from xcore.errors import EyrieError

HOST = "127.0.0.1"
SECONDS_TO_START = 90


def serve_dashboards() -> int:
    """Start both servers, print their addresses, wait, and stop them."""
    prefect_port, mlflow_port = _free_port(4200), _free_port(5000)
    commands = {
        f"http://{HOST}:{prefect_port}/api/health": [
            sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(prefect_port),
        ],
        f"http://{HOST}:{mlflow_port}/health": [
            sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(mlflow_port),
            "--backend-store-uri", settings.tracking_uri(),
            "--artifacts-destination", str(settings.home() / "mlflow-files"), "--workers", "1",
        ],
    }  # fmt: skip
    environment = os.environ | {
        "PREFECT_UI_API_URL": f"http://{HOST}:{prefect_port}/api",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    log_path = settings.home() / "dashboards.log"
    with log_path.open("ab") as log:
        servers = [
            subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
            for words in commands.values()
        ]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a supervisor's stop is a Ctrl-C
        try:
            for server, health in zip(servers, commands, strict=True):
                _wait_for(server, health, str(log_path))
            print(f"Prefect  http://{HOST}:{prefect_port}/runs")
            print(f"MLflow   http://{HOST}:{mlflow_port}/?workflowType=machine_learning")
            print("Ctrl-C stops both.", flush=True)
            while all(server.poll() is None for server in servers):
                time.sleep(1)
            raise EyrieError(f"a dashboard server stopped by itself; its last words are in {log_path}")
        except KeyboardInterrupt:
            return 0
        finally:
            for server in servers:
                os.killpg(server.pid, signal.SIGTERM)
            for server in servers:
                server.wait()


def _wait_for(server: subprocess.Popen[bytes], health: str, log_path: str) -> None:
    limit = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < limit and server.poll() is None:
        try:
            urllib.request.urlopen(health, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise EyrieError(f"no answer from {health} after {SECONDS_TO_START} s; see {log_path}")


def _free_port(wanted: int) -> int:
    """The usual port if nobody has it, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EyrieError(f"no free port on {HOST}")
