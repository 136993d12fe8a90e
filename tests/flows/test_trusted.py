"""The layer that checks Host and Origin, without a server: scopes in, messages out."""

import asyncio
from typing import Any

import pytest

from flows.operations.trusted import Message, Receive, Send, TrustedOnly, trusted_names, trusted_origins
from xcore.errors import ConfigError

NAMES = ["127.0.0.1:4200", "localhost:4200", "[::1]:4200", "eyrie.example.org", "secure.example.org:443"]


def answers(names: list[str], kind: str = "http", **headers: str | list[str]) -> list[Any]:
    """What a client hears through the layer; the application behind it says only that it was reached."""
    heard: list[Any] = []

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "reached"})

    async def receive() -> Message:
        raise AssertionError("nothing is read of a request that may be refused")

    async def send(message: Message) -> None:
        heard.append(message)

    pairs = [(key.encode(), value) for key, values in headers.items() for value in _list(values)]
    scope = {"type": kind, "path": "/api", "headers": [(key, value.encode("latin1")) for key, value in pairs]}
    asyncio.run(TrustedOnly(application, names)(scope, receive, send))
    return heard


def _list(values: str | list[str]) -> list[str]:
    return [values] if isinstance(values, str) else values


def is_let_in(**headers: str | list[str]) -> bool:
    http, socket = (answers(NAMES, kind, **headers) for kind in ("http", "websocket"))
    reached = [{"type": "reached"}]
    assert (http == reached) == (socket == reached)
    return http == reached


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "LOCALHOST:4200", "[::1]:4200"])
def test_programs_send_no_origin_and_are_let_in_by_the_servers_own_names(host: str) -> None:
    assert is_let_in(host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:4200",
        "127.0.0.1",
        "127.0.0.1:4201",
        "127.0.0.1.evil.example:4200",
        "localhost:4200.evil.example",
        "evil.example@127.0.0.1:4200",
        "localhost:4200, evil.example",
        "localhost.:4200",
        "eyrie.example.org.evil.example",
        "noteyrie.example.org",
        "secure.example.org:80",
        "localhost:4200\n",
        "ⅼocalhost:4200".encode().decode("latin1"),
        "",
    ],
)
def test_a_foreign_host_is_refused(host: str) -> None:
    assert not is_let_in(host=host)


def test_exactly_one_host_is_needed() -> None:
    assert not is_let_in()
    assert not is_let_in(host=["localhost:4200", "evil.example"])
    assert not is_let_in(host=["localhost:4200", "localhost:4200"])


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:4200", "http://localhost:4200", "https://eyrie.example.org", "https://secure.example.org"],
)
def test_pages_of_trusted_names_are_let_in(origin: str) -> None:
    assert is_let_in(host="127.0.0.1:4200", origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://evil.example:4200",
        "null",
        "",
        "http://localhost:3000",
        "http://localhost",
        "file://",
        "http://secure.example.org",
        "chrome-extension://localhost:4200",
        "http://localhost:4200/",
        "http://evil.example@localhost:4200",
        "http://localhost:4200 http://evil.example",
    ],
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert not is_let_in(host="127.0.0.1:4200", origin=origin)


def test_two_origins_are_refused() -> None:
    assert not is_let_in(host="127.0.0.1:4200", origin=["http://localhost:4200", "http://evil.example"])


def test_a_name_without_a_port_is_trusted_on_every_port() -> None:
    assert is_let_in(host="eyrie.example.org", origin="https://eyrie.example.org")
    assert is_let_in(host="eyrie.example.org:8443", origin="https://eyrie.example.org:8443")


def test_a_usual_port_may_be_left_out() -> None:
    assert is_let_in(host="secure.example.org", origin="https://secure.example.org:443")


def test_a_refusal_is_a_403_that_says_what_to_do_or_no_handshake() -> None:
    start, body = answers(NAMES, host="évil.example")
    assert start["status"] == 403
    assert b"the Host header is '\\xe9vil.example'" in body["body"]
    assert b"add it to EYRIE_TRUSTED_HOSTS" in body["body"]
    (closed,) = answers(NAMES, "websocket", host="localhost:4200", origin="http://evil.example")
    assert closed["type"] == "websocket.close"


def test_the_servers_own_start_and_end_pass() -> None:
    assert answers(NAMES, "lifespan") == [{"type": "reached"}]


def test_the_environment_adds_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EYRIE_TRUSTED_HOSTS", raising=False)
    assert trusted_names("127.0.0.1", 4200) == ["127.0.0.1:4200", "localhost:4200", "[::1]:4200"]
    assert trusted_names("localhost", 80)[0] == "127.0.0.1:80"
    assert trusted_names("192.0.2.7", 4200)[0] == "192.0.2.7:4200"
    assert trusted_names("0.0.0.0", 4200)[0] == "127.0.0.1:4200"
    monkeypatch.setenv("EYRIE_TRUSTED_HOSTS", " Eyrie.Example.org, localhost:9000,")
    assert trusted_names("127.0.0.1", 4200)[-2:] == ["eyrie.example.org", "localhost:9000"]
    assert trusted_origins(["localhost:9000"]) == ["http://localhost:9000", "https://localhost:9000"]


@pytest.mark.parametrize("name", ["*", "https://eyrie.example.org", "*.example.org", "a b", "name:port"])
def test_what_is_not_a_name_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_TRUSTED_HOSTS", f"localhost,{name}")
    with pytest.raises(ConfigError, match="expected NAME or NAME:PORT"):
        trusted_names("127.0.0.1", 4200)
