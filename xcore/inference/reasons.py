"""Why a model gives a row its labels, for any model: what the score of a label loses without each part of the row.

The parts of a text are its words, those of a sparse row its features. Nothing is assumed about the model: each part is
left out in turn and the rest is scored again (leave-one-out, or occlusion). So calibration, trees, ensembles and
encoders are all part of the answer. Two parts that say the same hide each other: without one, the other still speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
# Label id > score, for each row.
Answer = Callable[[Sequence[Row]], Sequence[Mapping[str, float]]]

WORD = re.compile(r"\w+")
MOST_PARTS = 256


class Part(NamedTuple):
    """A part of a row, and the row without it."""

    name: str
    rest: Row


class Effect(NamedTuple):
    """What the score of a label loses without a part; below 0 where the part speaks against the label."""

    part: str
    lost: float


def parts_of(row: Row) -> list[Part]:
    """The first parts of a row in their order, each once; none for a row that is a vector."""
    if "text" in row:
        return _words(str(row["text"]))
    if "indices" in row:
        return _features(list(row["indices"]), list(row["values"]))
    return []


def effects(answer: Answer, row: Row, labels: Sequence[str], parts: Sequence[Part], most: int) -> list[list[Effect]]:
    """The parts that change the scores of some labels most, for each label, the strongest first.

    Parameters
    ----------
    answer : callable
        Scores the best labels of rows. It should give many labels: one that is no longer among them has the lowest
        score that is, so that its loss is at least what is said.
    labels : sequence of str
        Labels that the row gets.
    parts : sequence of Part
        From `parts_of`.
    most : int
        Parts for each label; those without any effect are left out.

    Notes
    -----
    Cost: one answer of ``len(parts) + 1`` rows.
    """
    if not parts:
        return [[] for _ in labels]
    whole, *rests = answer([row, *(part.rest for part in parts)])
    found = []
    for label in labels:
        before = _score(whole, label)
        lost = [Effect(part.name, before - _score(rest, label)) for part, rest in zip(parts, rests, strict=True)]
        found.append(sorted((one for one in lost if one.lost), key=lambda one: (-abs(one.lost), one.part))[:most])
    return found


def _score(scores: Mapping[str, float], label: str) -> float:
    return scores.get(label, min(scores.values(), default=0.0))


def _words(text: str) -> list[Part]:
    places: dict[str, list[tuple[int, int]]] = {}
    for word in WORD.finditer(text):
        places.setdefault(word.group().lower(), []).append(word.span())
    return [Part(word, {"text": _without(text, spans)}) for word, spans in list(places.items())[:MOST_PARTS]]


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return " ".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _features(indices: list[int], values: list[float]) -> list[Part]:
    parts = []
    for feature in list(dict.fromkeys(indices))[:MOST_PARTS]:
        kept = [at for at, other in enumerate(indices) if other != feature]
        rest = {"indices": [indices[at] for at in kept], "values": [values[at] for at in kept]}
        parts.append(Part(str(feature), rest))
    return parts
