"""Odd inputs from sound ones: bytes changed, cut, repeated and replaced by what parsers trip over."""

from __future__ import annotations

import random

TRIPS = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x0c", b"\x0b", b"\x1c", b"\r", b"\n\n", b"\t", b" "),
    *(b"-1", b"1e999", b"nan", b"inf", b"1_0", b"0x1", b"9" * 20, b"9" * 5000, b"2147483648", b"-0", b".", b"e"),
    *(
        b":",
        b",",
        b";",
        b"#",
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"true",
        b"\\ud800",
        b"\\u0000",
        b"\xd9\xa3",
        b'"',
        b"'",
    ),
    *(
        b"!!python/object:os.system ",
        b"${HOME}",
        b"${",
        b"<<: *a",
        b"&a ",
        b"*a",
        b"../../x",
        b"kind",
        b"|",
        b">",
        b"%",
    ),
    *(b"---\n", b"[" * 300, b"+"),
)


def mutated(content: bytes, draws: random.Random) -> bytes:
    """One to four changes of the content."""
    changed = bytearray(content)
    for _ in range(draws.choice((1, 1, 1, 2, 4))):
        at = draws.randrange(len(changed) + 1)
        stop = min(len(changed), at + draws.choice((1, 1, 2, 8, 64)))
        what = draws.randrange(8)
        if what == 0 and changed:
            changed[at % len(changed)] ^= 1 << draws.randrange(8)
        elif what == 1 and changed:
            changed[at % len(changed)] = draws.randrange(256)
        elif what == 2:
            del changed[at:stop]
        elif what == 3:
            changed[at:at] = changed[at:stop] * draws.choice((1, 2, 30))
        elif what == 4:
            del changed[at:]
        else:
            changed[at : at if what < 7 else stop] = draws.choice(TRIPS)
    return bytes(changed)


def odd_value(draws: random.Random, depth: int = 0) -> object:
    """A JSON value that no caller means."""
    numbers = (-1, 0, 1, 7, 2**31, 2**63, 10**30, 1.5, 1e308, float("nan"), float("inf"))
    simple = (None, True, *numbers, "", "x", "\0", "\ud800", "9" * 99)
    if depth < 3 and draws.random() < 0.5:
        items = [odd_value(draws, depth + 1) for _ in range(draws.randrange(4))]
        return items if draws.random() < 0.7 else {f"k{n}": item for n, item in enumerate(items)}
    return draws.choice(simple)
