"""Steps of a lineage have names that no two of them share."""

from dataclasses import dataclass, field

from xcore.artifacts.naming import step_names


@dataclass(frozen=True)
class Toy:
    id: str
    kind: str
    inputs: "dict[str, Toy]" = field(default_factory=dict)


def test_steps_are_named_by_their_kinds_where_these_differ() -> None:
    dataset = Toy("1", "dataset")
    model = Toy("2", "model", {"dataset": dataset, "features": dataset})
    assert step_names([dataset, model]) == {"1": "dataset", "2": "model"}


def test_steps_of_one_kind_are_named_by_their_roles_in_the_consumer_nearest_to_the_result() -> None:
    rows = Toy("1", "embedding")
    few = Toy("2", "embedding", {"source": rows})
    tree = Toy("3", "tree", {"vectors": rows, "few": few})
    model = Toy("4", "model", {"tree": tree, "embedding": rows, "projection": few})
    names = step_names([rows, few, tree, model])
    assert names == {"1": "embedding", "2": "projection", "3": "tree", "4": "model"}


def test_a_name_that_is_taken_gets_a_number_and_tags_of_the_run_are_taken() -> None:
    first, second, third = Toy("1", "curve"), Toy("2", "curve"), Toy("3", "curve")
    one, two = Toy("4", "choice", {"trial": first}), Toy("5", "choice", {"trial": second})
    study = Toy("6", "study", {"cell": one, "flow": two, "choice": third})
    names = step_names([first, second, third, one, two, study])
    assert names == {"6": "study", "4": "cell", "5": "flow-2", "3": "choice", "1": "trial", "2": "trial-2"}


def test_a_result_keeps_its_kind_though_an_input_has_it_too() -> None:
    old = Toy("1", "model")
    new = Toy("2", "model", {"model": old})
    assert step_names([old, new]) == {"2": "model", "1": "model-2"}


def test_a_step_that_nothing_in_the_lineage_takes_has_a_name() -> None:
    assert step_names([Toy("1", "model"), Toy("2", "model"), Toy("3", "scores")]) == {
        "3": "scores",
        "1": "model",
        "2": "model-2",
    }
