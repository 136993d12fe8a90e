"""Requests that Prefect refuses because SQLite is locked are asked again, since its pages do not do so themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

UNAVAILABLE = 503
SUBMISSION = "/create_flow_run"  # what the form sends; a locked database has kept nothing of it
TRIES = 8
SECONDS_BETWEEN = 0.5


class AskAgain:
    """An ASGI application that repeats the submission of a form while the application behind it is unavailable."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on; a submission until it is taken, or `TRIES` times."""
        if scope["type"] != "http" or not scope["path"].endswith(SUBMISSION):
            await self._application(scope, receive, send)
            return
        body = await _whole(receive)
        for left in range(TRIES - 1, -1, -1):
            answer = await self._answer(scope, body, receive)
            if answer[0]["status"] != UNAVAILABLE or not left:
                for message in answer:
                    await send(message)
                return
            await asyncio.sleep(SECONDS_BETWEEN)

    async def _answer(self, scope: Message, body: bytes, receive: Receive) -> list[Message]:
        answer: list[Message] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def given() -> Message:
            return waiting.pop() if waiting else await receive()

        async def keep(message: Message) -> None:
            answer.append(message)

        try:
            await self._application(dict(scope), given, keep)
        except Exception:
            if not answer:  # Prefect raises its error once more after it has answered 503
                raise
        return answer


async def _whole(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body
