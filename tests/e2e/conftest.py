"""A real browser that may speak to this machine only, and pictures of what it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.stack import Stack, running_stack

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SECONDS_FOR_AN_ELEMENT = 120  # two are usual, but a loaded machine needs many more
WINDOW = {"width": 1280, "height": 900}


def is_outside(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"


# The fixtures end with their module and not with the session: as long as a browser lives, no other test in the same
# process could start an event loop.
@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Prefect, MLflow and a worker, started from scratch."""
    with running_stack(tmp_path_factory.mktemp("e2e") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def new_context() -> Iterator[Callable[[], tuple[BrowserContext, list[str]]]]:
    """Makes browser contexts; beside each, the addresses outside of this machine that its pages asked for, in vain."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(SWITCHES))

        def context() -> tuple[BrowserContext, list[str]]:
            made, outside = browser.new_context(viewport=WINDOW), []

            def judge(route: Any) -> None:
                if is_outside(route.request.url):
                    outside.append(route.request.url)
                    route.abort()
                else:
                    route.continue_()

            def listen(page: Page) -> None:
                page.on("websocket", lambda socket: is_outside(socket.url) and outside.append(socket.url))

            made.route("**/*", judge)
            made.on("page", listen)
            made.set_default_timeout(1000 * SECONDS_FOR_AN_ELEMENT)
            return made, outside

        yield context
        browser.close()


@pytest.fixture(scope="module")
def everyday(new_context: Callable[[], tuple[BrowserContext, list[str]]]) -> tuple[BrowserContext, list[str]]:
    """The browser of one person, who has closed MLflow's assistant."""
    context, outside = new_context()
    context.add_init_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
    return context, outside


@pytest.fixture
def page(everyday: tuple[BrowserContext, list[str]]) -> Iterator[Page]:
    """A new page; what it asked for outside of this machine fails the test."""
    context, outside = everyday
    opened = context.new_page()
    yield opened
    opened.close()
    asked, outside[:] = outside.copy(), []
    assert asked == []


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where pictures of the pages go: the folder that ``EYRIE_SCREENSHOTS`` names, or pytest's own."""
    named = os.environ.get("EYRIE_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if named:  # they go into the docs: 128 colours are enough there, and half of the bytes
        from PIL import Image

        for picture in folder.glob("*.png"):
            with Image.open(picture) as image:
                small = image.convert("RGB").quantize(128)
            small.save(picture, optimize=True)
