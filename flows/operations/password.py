"""An ASGI application behind a password (HTTP basic authentication)."""

from __future__ import annotations

import base64
import hmac

from flows.operations.trusted import Application, Message, Receive, Send

HEALTH = ("/ping", "/health")  # a load balancer asks without a password, and learns nothing


class PasswordOnly:
    """Answers only requests that carry ``user:password``."""

    def __init__(self, application: Application, auth: str) -> None:
        self._application = application
        self._expected = b"basic " + base64.b64encode(auth.encode())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or ask for the password."""
        if scope["type"] == "lifespan" or scope.get("path") in HEALTH or self._is_known(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        else:
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b'Basic realm="eyrie"')]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"a user name and a password are needed\n"})

    def _is_known(self, scope: Message) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, credentials = given[0].partition(b" ")
        return hmac.compare_digest(scheme.lower() + b" " + credentials.strip(), self._expected)
