"""Where things are kept. Everything has an embedded default below one work folder."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from xcore.artifacts import Store
from xcore.errors import ConfigError

AUTH_VARIABLE = "EYRIE_AUTH"
UMASK_VARIABLE = "EYRIE_UMASK"
PASSAGE = 0o010  # lets a group enter, and see no names: PostgreSQL's user needs it where Eyrie runs as root


def home() -> Path:
    """The work folder: ``EYRIE_HOME``, or ``work`` below the current folder."""
    return Path(os.environ.get("EYRIE_HOME", "work")).absolute()


def make_home() -> Path:
    """The work folder, made if it is missing; other accounts cannot enter a new one."""
    folder = home()
    if "?" in str(folder):  # it would end the path in the address of a database, which would be made elsewhere
        raise ConfigError(
            f"the work folder cannot be {folder}: its path holds a question mark. Set EYRIE_HOME to another"
        )
    folder.mkdir(mode=0o777 & ~_umask(), parents=True, exist_ok=True)
    return folder


def use_umask() -> None:
    """Keep what this process and its children write from other accounts: ``EYRIE_UMASK``, by default 077."""
    os.umask(_umask())


def tighten_home() -> str | None:
    """Close a work folder that is open to other accounts, where a password says that they are not to come in.

    Returns what was done, for a person to read. The folders and files below it keep their modes: nobody reaches them.
    """
    folder, mask = make_home(), _umask()
    mode = folder.stat().st_mode & 0o7777
    if not os.environ.get(AUTH_VARIABLE) or not mode & mask & ~PASSAGE:
        return None
    try:
        folder.chmod(mode & ~mask)
    except PermissionError:
        raise ConfigError(
            f"{AUTH_VARIABLE} is set, but other accounts can enter {folder} (mode {mode:04o}), and it is not yours to "
            f"close: let its owner run `chmod {mode & ~mask:04o}`, set EYRIE_HOME to a folder of your own, or set "
            f"{UMASK_VARIABLE} if it is shared on purpose (027: the group may read)"
        ) from None
    return (
        f"closed {folder} to other accounts (mode {mode:04o}, now {mode & ~mask:04o}), since {AUTH_VARIABLE} is set; "
        f"{UMASK_VARIABLE}=027 would leave it open to its group"
    )


def _umask() -> int:
    text = os.environ.get(UMASK_VARIABLE) or "077"
    if not re.fullmatch("0?[0-7]{3}", text) or int(text, 8) & 0o700:
        raise ConfigError(
            f"{UMASK_VARIABLE} is {text!r}; expected three octal digits that leave you your own files, "
            "such as 077 (nobody else may read) or 027 (the group may read)"
        )
    return int(text, 8)


def store() -> Store:
    """The artifact store: ``EYRIE_STORE`` (a folder or any `pyarrow.fs` URI), or ``store`` in the work folder."""
    return _store(os.environ.get("EYRIE_STORE") or str(home() / "store"), home() / "cache")


@cache
def _store(root: str, local_copies: Path) -> Store:
    """One for each root, since a store remembers which files it has found intact."""
    return Store(root, cache=local_copies)


def tracking_uri() -> str:
    """Where MLflow keeps runs: ``MLFLOW_TRACKING_URI``, or a SQLite file in the work folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"


def prefect_database() -> Path:
    """The SQLite file of Prefect, where no other database is named."""
    return Path(os.environ.get("PREFECT_HOME") or home() / "prefect") / "prefect.db"
