"""Files that are whole or not there, and folders inside a flat folder."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from xcore.errors import ArtifactDamaged


def problem_with_file(path: Path) -> str | None:
    """Why a path cannot be read as a plain file, in a few words; None if it can. A pipe is not opened: it waits."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "no file at this path"
    except (OSError, ValueError) as error:  # the second: characters that no path can have
        return (getattr(error, "strerror", None) or "a path that cannot exist").lower()
    if stat.S_ISDIR(mode):
        return "a folder"
    if not stat.S_ISREG(mode):
        return "a pipe or a device"
    return None if os.access(path, os.R_OK) else "a file that may not be read"


def shown_path(path: Path) -> str:
    """A path as a message can show it: some file names are not text."""
    return str(path).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


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


def save_part(directory: Path, prefix: str, save: Callable[[Path], None]) -> None:
    """Let `save` fill a folder of its own, then put its files into `directory` with a prefix to their names.

    A saved thing is a flat folder. So a thing that holds other saved things keeps their files under prefixes.
    """
    with TemporaryDirectory(dir=directory, prefix=".") as folder:
        save(Path(folder))
        for path in sorted(Path(folder).iterdir()):
            path.replace(directory / f"{prefix}{path.name}")


@contextmanager
def opened_part(directory: Path, prefix: str) -> Iterator[Path]:
    """A folder of links to the files with a prefix, under the names that they had before; gone after the block.

    Files that were opened or mapped inside the block stay readable. Damage is reported under the real names.
    """
    with TemporaryDirectory() as folder:
        for path in directory.glob(f"{prefix}*"):
            (Path(folder) / path.name.removeprefix(prefix)).symlink_to(path.absolute())
        try:
            yield Path(folder)
        except ArtifactDamaged as error:
            said = str(error).replace(f"{folder}/", f"{directory}/{prefix}").replace(folder, str(directory))
            raise ArtifactDamaged(said) from error
