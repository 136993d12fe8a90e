"""What people see of an artifact: the parts that a kind may have, and how a kind's own view is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xcore.artifacts import Artifact
from xcore.artifacts.schemas import schema_of

if TYPE_CHECKING:
    from xcore.report.beside import Beside

Point = tuple[int, Mapping[str, float]]


@dataclass(frozen=True)
class ShownTable:
    """A table for a terminal or a page.

    Attributes
    ----------
    title : str
    columns : names of the columns.
    rows : one list of texts per row, as long as `columns`.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class View:
    """What people see of an artifact. This one shows nothing; a kind overrides what it has to show.

    Attributes
    ----------
    logs_files : bool
        Whether the artifact's files are copied to the tracked run.
    stands_for_many : bool
        Whether the artifact summarises many runs. Each of them is tracked as a child of its run.
    shown_with_result : bool
        Whether the tracked run of one cell of a study shows the artifact too, and not only its result.
    has_page : bool
        Whether a page can be written about the artifact and all that it was made of (see `write_page`).
    """

    logs_files: ClassVar[bool] = False
    stands_for_many: ClassVar[bool] = False
    shown_with_result: ClassVar[bool] = False
    has_page: ClassVar[bool] = False

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        """What the summary of a run says, for programs: such as ``metrics`` and ``intervals``, each by name."""
        return {}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        """Metrics of the tracked run, each set with the step at which it was measured."""
        return []

    def tables(self, artifact: Artifact) -> Sequence[ShownTable]:
        """What a person sees at the end of a run that makes the artifact."""
        return []

    def sentence(self, artifact: Artifact) -> str:
        """What a person reads about the artifact at the end of a run that made it on the way to its result."""
        return ""

    def draw(self, artifact: Artifact, folder: Path) -> None:
        """Draw the artifact's plots into a folder."""

    def write_page(self, lineage: Sequence[Artifact], target: Path, beside: Beside | None = None) -> None:
        """Write a page about an artifact, the last of its lineage, with what is known beyond the artifacts."""
        raise TypeError(f"{type(self).__name__} has no page")

    def progress_group(self, name: str) -> str:
        """The first part of the names under which a step's progress is tracked; `name` is the step's."""
        return f"while_running/{name}"


@cache
def view_of(kind: str) -> View:
    """The view that a kind names in its schema; it is imported when it is first asked for."""
    module, _, name = schema_of(kind).view.partition(":")
    view = getattr(import_module(module), name)()
    if not isinstance(view, View):
        raise TypeError(f"kind {kind}: its view {schema_of(kind).view} is no View")
    return view
