"""A run that fails is told to a webhook, by a real Prefect server and a real listener."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.server.utilities.user_templates import render_user_template_sync

from flows.operations.notifications import PAYLOAD, VARIABLE
from tests.workplace import Workplace
from xcore.errors import ConfigError

SECONDS = 240


@pytest.fixture
def listener() -> Iterator[tuple[str, "Queue[Any]"]]:
    """An address, and what is posted to it."""
    heard: Queue[Any] = Queue()

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", heard
    server.shutdown()


def test_a_failed_run_is_posted_with_its_message(
    prefect_server: str, listener: tuple[str, "Queue[Any]"], tmp_path: Any
) -> None:
    address, heard = listener
    workplace = Workplace(tmp_path / "home", PREFECT_API_URL=prefect_server, **{VARIABLE: address})
    deployed = workplace.run("deploy", "--no-worker-runs", folder=tmp_path)  # without deployments, which take long
    assert deployed.returncode == 0, deployed.stderr
    bad = tmp_path / "bad.txt"
    bad.write_text("2 5 2\n0 0:1.0\n1 9:1.0\n")
    changes = ("data.reader.kind=xmc", f"data.train=[{bad}]", f"data.test=[{bad}]", "model.kind=ova", "name=bad")
    words = [word for change in changes for word in ("--set", change)]
    failed = workplace.run("pipeline", *words)
    assert failed.returncode == 2, failed.stderr
    told = heard.get(timeout=SECONDS)["text"]
    assert told.startswith("pipeline run bad-ova is Failed: ")
    assert "feature id out of range" in told


@pytest.mark.parametrize(
    "message", ['a "quoted" word', "two\nlines", "a\ttab", "C:\\folder", "\x01", "ü {{ x }}", None]
)
def test_what_is_posted_is_json_whatever_the_run_says(message: str | None) -> None:
    run = SimpleNamespace(name='r"un', state=SimpleNamespace(name="Failed", message=message))
    told = render_user_template_sync(PAYLOAD, {"flow": SimpleNamespace(name="f"), "flow_run": run})
    assert json.loads(told) == {"text": f'f run r"un is Failed: {message or ""}'}


def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.operations.notifications import notifications

    monkeypatch.setenv(VARIABLE, "mailto:me")
    with pytest.raises(ConfigError, match="must be an address with http"):
        notifications()
    monkeypatch.delenv(VARIABLE)
    assert notifications() == []
