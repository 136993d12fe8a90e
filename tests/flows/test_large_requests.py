"""Requests to a served model that are too large, or do not say how large they are, are refused before they are read."""

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from flows.operations import model_app

PATHS = ("/api/suggest", "/v1/projects/x/suggest", "/invocations")


@pytest.fixture
def client() -> TestClient:
    application = FastAPI()
    application.middleware("http")(model_app._refuse_large)

    @application.post("/{path:path}")
    async def size(path: str, request: Request) -> int:
        return len(await request.body())

    return TestClient(application)


@pytest.mark.parametrize("path", PATHS)
def test_a_request_in_pieces_must_say_its_length(client: TestClient, path: str) -> None:
    assert client.post(path, content=iter([b"x"])).status_code == 411


@pytest.mark.parametrize(("path", "most"), [("/api/suggest", 2_000_000), ("/invocations", 200_000_000)])
def test_a_large_request_is_refused(client: TestClient, path: str, most: int) -> None:
    assert client.post(path, content=b"x").json() == 1
    assert client.post(path, content=b"x", headers={"content-length": str(most + 1)}).status_code == 413
