"""What speaks for a label, found by leaving out the parts of a row."""

from collections.abc import Mapping, Sequence
from typing import Any

from xcore.inference.reasons import MOST_PARTS, Effect, effects, parts_of

WEIGHTS = {"owl": 0.5, "nest": 0.25, "cat": -0.125, "dog": -0.375}


def answer(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """A linear model of texts with one interesting label; below 0.2 another label takes its place."""
    scores = [sum(WEIGHTS.get(word, 0.0) for word in set(row["text"].lower().split())) for row in rows]
    return [{"bird": score} if score >= 0.2 else {"other": 0.2} for score in scores]


def reasons(text: str, most: int = 9) -> list[Effect]:
    row = {"text": text}
    return effects(answer, row, ["bird"], parts_of(row), most)[0]


def test_effects_of_a_linear_model_are_its_weights_strongest_first() -> None:
    assert reasons("nest and Owl and cat") == [("owl", 0.425), ("nest", 0.25), ("cat", -0.125)]


def test_a_part_that_speaks_against_the_label_ranks_by_its_size() -> None:
    assert reasons("owl nest dog") == [("dog", -0.375), ("nest", 0.175), ("owl", 0.175)]


def test_a_label_that_drops_out_loses_at_least_what_is_left() -> None:
    assert reasons("owl") == [("owl", 0.3)]


def test_only_the_strongest_parts_are_told() -> None:
    assert [one.part for one in reasons("nest owl cat", most=1)] == ["owl"]


def test_all_occurrences_of_a_word_are_left_out_whatever_their_case() -> None:
    parts = parts_of({"text": "Owl, owl and OWL!"})
    assert [part.name for part in parts] == ["owl", "and"]
    assert parts[0].rest["text"].split() == [",", "and", "!"]


def test_a_sparse_row_loses_all_values_of_a_feature() -> None:
    parts = parts_of({"indices": [3, 7, 3], "values": [1.0, 2.0, 4.0]})
    assert [(part.name, part.rest) for part in parts] == [
        ("3", {"indices": [7], "values": [2.0]}),
        ("7", {"indices": [3, 3], "values": [1.0, 4.0]}),
    ]


def test_long_rows_are_cut_and_vectors_and_empty_rows_have_no_parts() -> None:
    assert len(parts_of({"text": " ".join(map(str, range(1000)))})) == MOST_PARTS
    assert parts_of({"vector": [1.0]}) == []
    assert effects(answer, {"text": ""}, ["bird"], parts_of({"text": ""}), 3) == [[]]
