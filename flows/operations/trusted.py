"""Which names a server answers to. A web page of another site can then neither call it nor open its WebSockets."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from xcore.errors import ConfigError

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

TRUSTED_VARIABLE = "EYRIE_TRUSTED_HOSTS"
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "[::1]")
EVERY_ADDRESS = "0.0.0.0"
NAME = re.compile(r"(?P<name>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.ASCII)
ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#@]+)", re.ASCII)
DEFAULT_PORTS = {"http": 80, "https": 443}
POLICY_VIOLATION = 1008  # of RFC 6455; before the handshake is accepted, the browser sees a plain 403
SHOWN = 100

logger = logging.getLogger(__name__)


def trusted_names(host: str, port: int) -> list[str]:
    """Names of a server that listens on `host` and `port`: ``name:port``, or ``name`` for any port.

    The first one is how programs on this machine call it. ``EYRIE_TRUSTED_HOSTS`` adds names, separated by commas.
    """
    here = LOOPBACK if host in (EVERY_ADDRESS, "localhost") else f"[{host}]" if ":" in host else host
    outside = [socket.getfqdn()] if host == EVERY_ADDRESS else []
    own = (f"{name.lower()}:{port}" for name in (here, *LOOPBACK_NAMES, *outside))
    return list(dict.fromkeys((*own, *_added_names())))


def trusted_origins(names: Iterable[str]) -> list[str]:
    """Addresses of the pages that servers with these names may send: a proxy before them may add TLS."""
    return [f"{scheme}://{name}" for scheme in DEFAULT_PORTS for name in names]


class TrustedOnly:
    """An ASGI application behind a check of the Host and Origin headers, for HTTP and for WebSockets.

    Host must be a trusted name: a name that somebody pointed at this machine (DNS rebinding) is not. Origin must be
    absent, as with programs that are not browsers, or must have a trusted name: browsers send it with each WebSocket
    and with each request but plain reads, and a page cannot forge it.
    """

    def __init__(self, application: Application, names: Iterable[str]) -> None:
        self._application = application
        self._trusted = {_parsed(name) for name in names}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        problem = None if scope["type"] == "lifespan" else self._problem(scope)
        if problem is None:
            await self._application(scope, receive, send)
            return
        logger.warning("refused %s %s: %s", scope["type"], ascii(scope.get("path", ""))[:SHOWN], problem)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": ""})
            return
        text = f"refused: {problem}. If it is a name of this server, add it to {TRUSTED_VARIABLE}.\n".encode()
        headers = [(b"content-type", b"text/plain"), (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _problem(self, scope: Message) -> str | None:
        hosts, origins = _header(scope, b"host"), _header(scope, b"origin")
        if len(hosts) != 1 or not self._is_trusted(hosts[0], None):
            return f"the Host header is {_shown(hosts)}, which is not a trusted name"
        if not origins:
            return None
        origin = ORIGIN.fullmatch(origins[0])
        if len(origins) != 1 or not origin or not self._is_trusted(origin["authority"], origin["scheme"]):
            return f"the Origin header is {_shown(origins)}, which is not a trusted name"
        return None

    def _is_trusted(self, authority: str, scheme: str | None) -> bool:
        """Whether a name and its port are trusted. A Host header without a port may mean either usual port."""
        match = NAME.fullmatch(authority)
        if not match:
            return False
        usual = [DEFAULT_PORTS[scheme]] if scheme else DEFAULT_PORTS.values()
        ports = [int(match["port"])] if match["port"] else usual
        return any((match["name"], port) in self._trusted for port in (None, *ports))


def _added_names() -> list[str]:
    names = [name.strip().lower() for name in os.environ.get(TRUSTED_VARIABLE, "").split(",")]
    for name in filter(None, names):
        _parsed(name)
    return [name for name in names if name]


def _parsed(name: str) -> tuple[str, int | None]:
    match = NAME.fullmatch(name)
    if not match:
        raise ConfigError(
            f"{TRUSTED_VARIABLE}: {name!r} is not the name of a host; "
            "expected NAME or NAME:PORT, several separated by commas, such as eyrie.example.org,localhost:9000"
        )
    return match["name"], int(match["port"]) if match["port"] else None


def _header(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin1").lower() for key, value in scope["headers"] if key.lower() == name]


def _shown(values: list[str]) -> str:
    return ", ".join(ascii(value[:SHOWN]) for value in values) or "missing"
