"""Relative paths of a preset: they count from the folder of the preset."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from xcore.components import Component

P = TypeVar("P", bound=Component)


def paths_from(folder: Path, params: P, as_given: Collection[str] = ()) -> P:
    """The parameters with each relative path that names something in `folder` made absolute.

    A path that names nothing there stays, and so counts from the current folder: that of a file which a run will
    write, or of presets that were written for a certain working folder.

    Parameters
    ----------
    as_given : dotted places of parameters that do not come from the preset, such as ``data.train``.
    """
    moved: P = _moved(params, folder, frozenset(as_given), ())
    return moved


def _moved(value: Any, folder: Path, as_given: frozenset[str], place: tuple[str, ...]) -> Any:
    if ".".join(place) in as_given:
        return value
    if isinstance(value, Path):
        there = folder.absolute() / value  # an absolute path stays what it is
        return there if not value.is_absolute() and _exists(there) else value
    if isinstance(value, Component):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        moved = {name: _moved(one, folder, as_given, (*place, name)) for name, one in fields.items()}
        changed = {name: one for name, one in moved.items() if one is not fields[name]}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, list | tuple):
        items = [_moved(one, folder, as_given, (*place, str(i))) for i, one in enumerate(value)]
        same = all(one is before for one, before in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value


def _exists(path: Path) -> bool:
    """Whether there is such a path; one that no file system takes, since a name is too long, is not there."""
    try:
        return path.exists()
    except OSError:
        return False
