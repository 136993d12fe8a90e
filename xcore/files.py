"""Files that are whole or not there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a draft beside `target` to write to; it takes the target's place when the block ends without an error.

    A reader sees the old file or the new one, never a part. Two writers do not disturb each other: the last one wins.
    """
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
