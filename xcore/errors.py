"""The one error tree. Every message says what is wrong, what was got, what was expected, what to do."""

from __future__ import annotations

from dataclasses import dataclass


class EyrieError(Exception):
    """Base of all errors that Eyrie raises on purpose; a command prints it without a traceback."""


class ConfigError(EyrieError):
    """A parameter, preset or option is wrong, or two of them do not fit together."""


class ArgumentError(ConfigError, ValueError):
    """An argument of a call from Python is wrong; a `ValueError`, as callers of scikit-learn expect."""


class ArtifactError(EyrieError):
    """The artifact store does not hold what was asked for, or holds it damaged."""


class ArtifactMissing(ArtifactError):
    """No artifact of that kind and id has a manifest."""


class ArtifactDamaged(ArtifactError):
    """An artifact's files do not match its manifest."""


class NotEnoughMemory(EyrieError):
    """Something would take more memory than there is."""


@dataclass(frozen=True)
class Place:
    """Where in the input something was found; line and column count from 1.

    In a table (Parquet, JSONL, CSV, npz) the line of a binary file is its row, and `field` is the column's name.
    """

    file: str
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place} (column '{self.field}')" if self.field is not None else place


class InputError(EyrieError):
    """Input data is not what its format promises.

    Parameters
    ----------
    place : Place
        File, line and column of the first offending byte or cell.
    problem : str
        What is wrong, in a few words; also the reason written to the quarantine table.
    found, expected : str
        What stands there, and what should.
    fix : str
        What the owner of the file can do about it.
    """

    def __init__(self, place: Place, problem: str, found: str, expected: str, fix: str = "") -> None:
        self.place, self.problem, self.found, self.expected, self.fix = place, problem, found, expected, fix
        message = f"{place}: {problem}: found {found}, expected {expected}"
        super().__init__(f"{message}. {fix}" if fix else message)
