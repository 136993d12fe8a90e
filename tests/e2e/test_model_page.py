"""A served model: its page, by mouse and keyboard; Annif's protocol, metrics and the alias on the same server."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import free_port
from tests.flows.test_access import started
from tests.small_models import made_model
from tests.workplace import Workplace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e")]

NAME, TEXT = "nest", "Bee1 and bee2, word3 and <b>bee3</b>"
SECONDS_TO_FOLLOW = 120


class Server:
    """A served model."""

    def __init__(self, workplace: Workplace, port: int) -> None:
        self.workplace, self.address = workplace, f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=60) as response:
            return str(response.read().decode())

    def post(self, path: str, body: bytes, kind: str) -> tuple[int, Any]:
        request = urllib.request.Request(self.address + path, body, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def ask(self, path: str, **body: Any) -> tuple[int, Any]:
        return self.post(path, json.dumps(body).encode(), "application/json")

    def form(self, path: str, **fields: Any) -> tuple[int, Any]:
        return self.post(path, urllib.parse.urlencode(fields).encode(), "application/x-www-form-urlencoded")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The champion of two versions: one-vs-all on texts, and after it a memory."""
    from tasks.champions import promote
    from tasks.model_parts import parts_of
    from tasks.model_registry import register
    from tasks.settings import tracking_uri
    from xcore.models.memory import Memory
    from xcore.models.ova import Ova

    folder, port = tmp_path_factory.mktemp("page"), free_port()
    workplace = Workplace(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EYRIE_HOME", str(workplace.home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("MLFLOW_TRACKING_URI", tracking_uri())
        recipes = [made_model(Ova(), "text", folder, dev=0.3), made_model(Memory(), "text", folder)]
        made = [register(NAME, parts_of(recipe.ref), None) for recipe in recipes]
        promote(made[0][0])
    words = ("models", "serve", NAME, "--port", str(port))
    with started(workplace, folder / "serve.log", "Uvicorn running on", *words):
        yield Server(workplace, port)


def test_a_typed_text_gets_labels_reasons_and_a_threshold(page: Page, server: Server, pictures: Path) -> None:
    page.goto(server.address)
    page.get_by_role("heading", name="nest, version 1").wait_for()
    page.get_by_label("Text").fill(TEXT)
    page.get_by_label("Labels", exact=True).fill("4")
    page.get_by_role("button", name="Suggest labels").click()
    suggested = page.locator("#labels > li")
    suggested.nth(3).wait_for()
    assert suggested.count() == 4
    assert "bee" in suggested.first.inner_text()
    suggested.first.get_by_role("button").click()
    terms = suggested.first.locator(".term")
    terms.nth(2).wait_for()
    assert {text.split()[0] for text in terms.all_inner_texts()[:3]} == {"bee1", "bee2", "bee3"}
    assert all(re.fullmatch(r"bee\d \+0\.\d+", text) for text in terms.all_inner_texts()[:3])
    assert page.locator("#marked-text").inner_text() == TEXT  # markup in a text stays text
    assert page.locator("#marked-text mark").first.inner_text() == "Bee1"
    page.get_by_label("Threshold", exact=True).focus()
    page.keyboard.press("End")
    page.get_by_text("1 of 4 labels reach the threshold 1.00").wait_for()
    page.keyboard.press("Home")
    page.get_by_text("4 of 4 labels reach the threshold 0.00").wait_for()
    page.screenshot(path=pictures / "model-page.png", animations="disabled", full_page=True)
    page.get_by_label("Only labels that reach their own threshold").check()
    page.get_by_role("button", name="Suggest labels").click()
    page.get_by_text("1 of 1 labels reach the threshold 0.00").wait_for()


def test_a_row_of_the_data_is_shown_with_its_true_labels(page: Page, server: Server) -> None:
    page.goto(server.address)
    chosen = page.get_by_label("Choose a row of the data")
    chosen.locator("option").nth(1).wait_for(state="attached")
    chosen.select_option(index=1)
    page.get_by_text("✓ true").wait_for()
    truth = page.locator("#true-labels li").first.inner_text()
    assert truth.endswith("found")
    assert truth.split()[0] in page.get_by_label("Text").input_value()  # the label owns words of the text


def test_the_page_is_used_by_keyboard_alone_and_tells_errors(page: Page, server: Server) -> None:
    page.goto(server.address)
    page.get_by_role("heading", name="nest, version").wait_for()
    page.get_by_label("Text").focus()
    page.keyboard.type("cat1 cat2")
    page.keyboard.press("Control+Enter")
    page.locator("#labels > li").first.get_by_text("cat", exact=True).first.wait_for()
    assert page.locator("#status.error").count() == 0
    page.get_by_label("Labels", exact=True).fill("0")
    page.get_by_label("Text").focus()
    page.keyboard.press("Control+Enter")
    page.locator("#status.error").wait_for()
    assert "greater than or equal to 1" in page.locator("#status").inner_text()


def test_annifs_http_backend_gets_its_answers(server: Server) -> None:
    project = json.loads(server.get(f"/v1/projects/{NAME}"))
    assert project["is_trained"] is True
    assert re.match(r"\d{4}-\d\d-\d\dT", project["modification_time"])
    status, answer = server.form(f"/v1/projects/{NAME}/suggest", text="fox1 fox2", limit=2)
    assert status == 200
    assert answer["results"][0]["uri"] == "fox"
    assert len(answer["results"]) == 2
    assert all(0 <= hit["score"] <= 1 for hit in answer["results"])
    assert server.form(f"/v1/projects/{NAME}/suggest", text="fox1", threshold=1.1)[1] == {"results": []}
    status, answer = server.form(f"/v1/projects/{NAME}/suggest", text="fox1", limit="many")
    assert status == 400
    assert answer["detail"] == "limit is 'many', expected a number"


def test_rows_that_do_not_fit_are_refused_with_a_reason(server: Server) -> None:
    status, answer = server.ask("/api/suggest", row={"vector": [1.0]})
    assert status == 400
    assert answer["detail"] == "a row of this model has text, got vector"
    assert server.ask("/api/suggest", row={"text": "x" * 2_000_001})[0] == 413
    for path, more in (("/api/suggest", {}), ("/api/reasons", {"labels": ["fox"]})):
        status, answer = server.ask(path, row={"text": "fox1 \ud800"}, **more)
        assert status == 400
        assert answer["detail"] == "text has '\\ud800' at position 5, which is no character"
    status, answer = server.ask("/invocations", dataframe_records=[{"text": "fox1 \ud800"}])
    assert status == 400
    assert "surrogates not allowed" in answer["message"]


def count_of(server: Server, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics"), re.M)
    return float(found[1]) if found else 0.0


def test_metrics_count_rows_but_not_those_of_explanations(server: Server) -> None:
    before = count_of(server, "eyrie_rows_total")
    server.ask("/api/suggest", row={"text": "dog1"})
    server.ask("/api/reasons", row={"text": "dog1 dog2"}, labels=["dog"])
    rows = {"dataframe_records": [{"text": "dog1"}, {"text": "ant1"}], "params": {"k": 2}}
    status, answer = server.ask("/invocations", **rows)
    assert status == 200
    assert [len(row["labels"]) for row in answer["predictions"]] == [2, 2]
    assert count_of(server, "eyrie_rows_total") == before + 3
    assert count_of(server, 'eyrie_requests_total{path="/invocations",status="200"}') >= 1


def test_the_server_follows_the_alias_and_a_memory_shows_its_nearest_rows(page: Page, server: Server) -> None:
    done = server.workplace.run("models", "promote", NAME, "2")
    assert done.returncode == 0, done.stderr
    limit = time.monotonic() + SECONDS_TO_FOLLOW
    while count_of(server, f'eyrie_model_version{{name="{NAME}"}}') != 2:
        assert time.monotonic() < limit
        time.sleep(0.5)
    page.goto(server.address)
    page.get_by_role("heading", name="nest, version 2").wait_for()
    page.get_by_label("Text").fill("eel1 eel2")
    page.get_by_role("button", name="Suggest labels").click()
    page.locator("#labels > li").first.get_by_role("button").click()
    page.get_by_role("heading", name="Nearest training rows").wait_for()
    assert "Labels: eel" in page.locator("#near-rows > li").first.inner_text()
    assert "eel" in page.locator("#near-rows > li div").first.inner_text()
