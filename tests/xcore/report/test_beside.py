"""What the report shows beside its artifacts: the champion and the learning curves."""

import re

from xcore.report.beside import CURVE_POINTS, Champion, champion_section, curves_section
from xcore.report.results import Results

RESULTS = Results({"precision_at_1": 0.5, "ndcg_at_5": 0.4, "tail/precision_at_1": 0.1}, {})


def text_of(page: object) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", str(page)))


def test_the_champions_metrics_stand_beside_those_of_the_run() -> None:
    section = champion_section(RESULTS, Champion("laws version 3", {"precision_at_1": 0.45}, same_rows=True))
    assert "Precision @ 1, % 50.00 45.00 5.00" in text_of(section)
    assert "nDCG" not in text_of(section)  # the champion's is not known
    assert "same rows" in text_of(section)


def test_a_champion_that_was_measured_elsewhere_is_said_to_be() -> None:
    other = champion_section(RESULTS, Champion("laws version 3", {"precision_at_1": 0.45}, same_rows=False))
    assert "measured on other rows" in text_of(other)
    own = champion_section(RESULTS, Champion("laws version 3", {}, same_rows=True, is_this=True))
    assert "This model is the champion: laws version 3" in text_of(own)
    assert champion_section(RESULTS, None) is None


def test_a_learning_curve_needs_two_points_and_long_ones_are_thinned_out() -> None:
    assert curves_section({"train/loss": [(1.0, 0.5)]}) is None
    drawn = str(curves_section({"train/loss": [(float(i), 1.0) for i in range(10_000)]}))
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    assert len(points.split()) == CURVE_POINTS
    assert "train/loss" in drawn


def test_the_time_of_a_training_is_no_curve() -> None:
    points = [(1.0, 0.5), (2.0, 0.7)]
    drawn = str(curves_section({"train/loss": points, "train/seconds": points, "train/cpu_seconds": points}))
    assert "seconds" not in drawn
