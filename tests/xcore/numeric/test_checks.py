"""Each check lets the right arrays pass, and says what is wrong with the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xcore.errors import ArtifactDamaged
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile, Checked


def checked(values: list[float], dtype: str = "i8") -> Checked:
    return Checked(Path("folder/x.safetensors"), "a", np.array(values, dtype))


def test_right_arrays_pass_all_checks_and_come_back() -> None:
    for values in ([], [0], [0, 3, 7]):
        found = checked(values).finite().within(0, 8).ascending()
        assert found.array.tolist() == values
    assert checked([0, 0, 3, 3, 7]).offsets(7).array.tolist() == [0, 0, 3, 3, 7]
    assert checked([0]).offsets(0).array.tolist() == [0]
    parts = np.array([0, 0, 2, 4, 4, 4])
    assert checked([5, 9, 0, 1]).ascending(parts).array.tolist() == [5, 9, 0, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_place_of_a_number_that_is_none_is_named(value: float) -> None:
    with pytest.raises(ArtifactDamaged, match=rf"folder/x\.safetensors: array 'a' holds {value} at place 2, expected"):
        checked([0, 1, value, 3], "f4").finite()
    with pytest.raises(ArtifactDamaged, match="expected numbers from 0 to below inf"):
        checked([0, 1, value, 3], "f4").within(0, np.inf)


@pytest.mark.parametrize("values", [[-1, 2], [0, 5], [7, 3]])
def test_numbers_out_of_range_are_refused(values: list[float]) -> None:
    with pytest.raises(ArtifactDamaged, match="expected numbers from 0 to below 5"):
        checked(values).within(0, 5)


def test_numbers_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ArtifactDamaged, match="does not rise from place 1 to the next"):
        checked([0, 2, 2, 3]).ascending()
    with pytest.raises(ArtifactDamaged, match="does not rise from place 2 to the next"):
        checked([5, 9, 1, 0]).ascending(np.array([0, 2, 4]))


@pytest.mark.parametrize("values", [[], [0], [1, 4], [0, 3], [0, 3, 2, 4], [0, 5, 4], [0, -1, 4]])
def test_offsets_that_do_not_lead_from_0_to_the_end_are_refused(values: list[float]) -> None:
    with pytest.raises(ArtifactDamaged, match="expected offsets that never fall, from 0 to 4"):
        checked(values).offsets(4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "x.safetensors", {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1)})
    return tmp_path / "x.safetensors"


def test_arrays_are_taken_by_type_and_shape(file: Path) -> None:
    with ArrayFile(file) as opened:
        assert opened.take("a", (np.float64, np.float32), (2, None)).array.shape == (2, 3)
        opened.take("b", np.float64, (1,))
        with pytest.raises(ArtifactDamaged, match="array 'a' is of type float32, expected float64"):
            opened.take("a", np.float64, (2, 3))
        for shape in ((3, None), (6,), (2, 3, 1)):
            with pytest.raises(ArtifactDamaged, match=r"array 'a' has the shape \(2, 3\), expected \("):
                opened.take("a", np.float32, shape)
        with pytest.raises(ArtifactDamaged, match=r"holds the arrays \['a', 'b'\], expected 'c' too"):
            opened.take("c", np.float32, (1,))


def test_an_array_that_nobody_takes_is_refused_but_hides_no_other_error(file: Path) -> None:
    with pytest.raises(ArtifactDamaged, match=r"unknown arrays \['b'\]"), ArrayFile(file) as opened:
        opened.take("a", np.float32, (2, 3))
    with pytest.raises(ArtifactDamaged, match="is of type"), ArrayFile(file) as opened:
        opened.take("a", np.int32, (2, 3))
