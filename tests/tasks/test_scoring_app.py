"""What a served version shows as the score of a label, from 0 to 1, whatever the scale of its model."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.scoring_app import LoadedVersion


@pytest.mark.parametrize(
    ("scale", "scores", "expected"),
    [
        ("share", [0.75, 0.25, -0.5], [0.75, 0.25, 0.0]),
        ("share", [1.5], [1.0]),
        ("margin", [1.0, 0.0, -0.5], [1.0, 0.5, 0.25]),
        ("log", np.log([0.5, 0.25, 0.25]).tolist(), [0.5, 0.25, 0.25]),
        ("log", [700.0, 700.0], [0.5, 0.5]),
        ("log", [], []),
    ],
)
def test_scores_are_shown_as_shares(scale: str, scores: list[float], expected: list[float]) -> None:
    version = LoadedVersion.__new__(LoadedVersion)  # a registry is of no use here
    version.scale = scale
    assert version._shares(scores) == pytest.approx(expected)
