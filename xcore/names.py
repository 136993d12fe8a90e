"""Names that people give: they become parts of paths and of queries, so they are checked before anything uses them."""

from __future__ import annotations

from xcore.errors import ConfigError

LONGEST_NAME = 100
_ALSO_ALLOWED = frozenset(" ._-")


def checked_name(name: str) -> str:
    """The name itself, if it can name an experiment or a model.

    Raises
    ------
    ConfigError
        It is empty or too long, it does not start with a letter or a digit, or it holds another character than
        letters, digits, spaces, dots, hyphens and underscores. A name such as ``../x`` would leave its folder.
    """
    wrong = sorted({char for char in name if not (char.isalnum() or char in _ALSO_ALLOWED)})
    if wrong or not name[:1].isalnum() or name != name.rstrip(" .") or len(name) > LONGEST_NAME:
        found = f" ({' '.join(map(repr, wrong))} is not allowed)" if wrong else ""
        raise ConfigError(
            f"{name[:LONGEST_NAME]!r} cannot be a name{found}: expected at most {LONGEST_NAME} letters, digits, "
            "spaces, dots, hyphens and underscores that start with a letter or a digit and do not end with a space or "
            "a dot. Choose another name"
        )
    return name
