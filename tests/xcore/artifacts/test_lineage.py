import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.xcore.artifacts.test_store import Number, add_one, number
from xcore.artifacts import ArtifactRef, Manifest, Recipe, Store
from xcore.artifacts.lineage import inputs_first

STAGES = 16


def diamonds(stages: int) -> Recipe:
    """A chain of stages, each of which is made of the stage before it in two ways."""
    step = number()
    for stage in range(stages):
        sides = [Recipe("model", add_one, Number(value=stage * 10 + side), {"number": step}) for side in (1, 2)]
        step = Recipe("model", add_one, Number(value=stage * 10), {"number": sides[0], "other": sides[1]})
    return step


def test_each_step_is_visited_once_whatever_the_paths_to_it() -> None:
    visits: Counter[int] = Counter()

    def inputs_of(recipe: Recipe) -> list[Recipe]:
        visits[id(recipe)] += 1
        return list(recipe.inputs.values())

    result = diamonds(STAGES)
    steps = list(inputs_first(result, inputs_of, id))
    assert len(steps) == 1 + 3 * STAGES
    assert set(visits.values()) == {1}


class CountedInputs(dict[str, Recipe]):
    """Inputs that count how often they are walked through."""

    walks = 0

    def values(self) -> Any:
        CountedInputs.walks += 1
        return super().values()


def test_the_lineage_and_the_id_of_chained_diamonds_cost_a_walk_for_each_step() -> None:
    def counted(recipe: Recipe, known: dict[int, Recipe]) -> Recipe:
        if id(recipe) not in known:
            inputs = CountedInputs({role: counted(source, known) for role, source in recipe.inputs.items()})
            known[id(recipe)] = Recipe("model", recipe.build, recipe.options, inputs)
        return known[id(recipe)]

    result = counted(diamonds(STAGES), {})
    CountedInputs.walks = 0
    assert result.id
    n_steps = len(list(result.lineage()))
    assert n_steps == 1 + 3 * STAGES
    assert CountedInputs.walks <= 4 * n_steps


def test_inputs_come_first_and_equal_steps_once() -> None:
    planned_twice = [Recipe("model", add_one, Number(value=10), {"number": number()}) for _ in range(2)]
    result = Recipe("model", add_one, Number(value=5), dict(zip("ab", planned_twice, strict=True)))
    assert [step.id for step in result.lineage()] == [number().id, planned_twice[0].id, result.id]


def test_a_lineage_may_be_deeper_than_the_interpreter_recurses() -> None:
    step = number()
    for value in range(sys.getrecursionlimit() * 2):
        step = Recipe("model", add_one, Number(value=value), {"number": step})
    assert step.id
    assert len(list(step.lineage())) == sys.getrecursionlimit() * 2 + 1


def test_the_store_reads_each_manifest_of_a_lineage_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, result = Store(tmp_path), diamonds(STAGES)
    for step in result.lineage():
        store.make(step)
    read: Counter[str] = Counter()
    manifest = Store.manifest

    def counted(self: Store, ref: ArtifactRef) -> Manifest:
        read[ref.id] += 1
        return manifest(self, ref)

    monkeypatch.setattr(Store, "manifest", counted)
    assert [step.id for step in store.lineage(result.ref)] == [step.id for step in result.lineage()]
    assert set(read.values()) == {1}
