"""A form's submission is asked again while the database is locked; nothing else is."""

import asyncio
from typing import Any

import pytest

from flows.operations import busy


class Locked:
    """Answers 503 a few times, and then echoes the body."""

    def __init__(self, times: int) -> None:
        self.left, self.asked = times, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        body = (await receive())["body"]
        status, self.left = (503, self.left - 1) if self.left else (201, 0)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})
        if status == 503:
            raise RuntimeError("as Prefect's server does after its answer")


def ask(application: Any, path: str) -> tuple[int, bytes]:
    parts = [{"body": b"sub", "more_body": True}, {"body": b"mit", "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(busy.AskAgain(application)({"type": "http", "path": path}, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "SECONDS_BETWEEN", 0)


def test_a_submission_is_repeated_whole_until_it_is_taken() -> None:
    locked = Locked(times=3)
    assert ask(locked, "/api/deployments/7/create_flow_run") == (201, b"submit")
    assert locked.asked == 4


def test_after_some_tries_the_answer_is_passed_on() -> None:
    locked = Locked(times=100)
    assert ask(locked, "/api/deployments/7/create_flow_run")[0] == 503
    assert locked.asked == busy.TRIES


def test_other_requests_are_asked_once() -> None:
    locked = Locked(times=1)
    with pytest.raises(RuntimeError):
        ask(locked, "/api/flow_runs/filter")
    assert locked.asked == 1
