"""Names for the steps of a lineage, by which metrics, tags and reports tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

RESERVED = ("id", "flow", "flow_run_id")  # tags of a tracked run that are no steps


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


class Step(_HasId, Protocol):
    """A recipe or a manifest."""

    @property
    def kind(self) -> str: ...

    @property
    def inputs(self) -> Mapping[str, _HasId]: ...


def step_names(lineage: Sequence[Step]) -> dict[str, str]:
    """A name for each step of a lineage, by the step's id; no two steps have the same name.

    A step is named by its kind. Where several steps are of one kind, each is named by the role under which a later
    step takes it: of several such steps, the one nearest to the result. A name that is taken gets a number. Steps of
    one kind come nearest first.

    Parameters
    ----------
    lineage : sequence of steps
        Inputs first, the result last.
    """
    kinds = Counter(step.kind for step in lineage)
    names = {step.id: step.kind for step in lineage if kinds[step.kind] == 1 or step is lineage[-1]}
    taken = {*names.values(), *RESERVED}
    for step_id, role in _nearest_roles(lineage).items():
        if step_id not in names:
            names[step_id] = _free_name(role, taken)
            taken.add(names[step_id])
    return names


def _nearest_roles(lineage: Sequence[Step]) -> dict[str, str]:
    """The role of each step in the consumer that is nearest to the result, nearest first."""
    steps = {step.id: step for step in lineage}
    roles = {lineage[-1].id: lineage[-1].kind}
    waiting = [lineage[-1]]
    for step in waiting:
        for role, source in step.inputs.items():
            if source.id in steps and source.id not in roles:
                roles[source.id] = role
                waiting.append(steps[source.id])
    # What nothing in the lineage takes (a lineage may be given in part) keeps its kind.
    return roles | {step.id: step.kind for step in lineage if step.id not in roles}


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
