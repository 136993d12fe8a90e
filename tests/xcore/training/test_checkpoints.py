"""Checkpoints: whole or not used."""

from pathlib import Path

import numpy as np
import pytest

from xcore.training import checkpoints
from xcore.training.checkpoints import Checkpoints, Pieces, training_name

ARRAYS = {"weights": np.arange(12, dtype=np.float32).reshape(3, 4), "step": np.array([7])}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", np.inf)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "new", "a training")
    kept.write(ARRAYS)
    found = Checkpoints(tmp_path / "new", "a training").read()
    assert found is not None
    assert sorted(found) == sorted(ARRAYS)
    assert all(np.array_equal(found[name], array) for name, array in ARRAYS.items())


def test_no_folder_keeps_nothing() -> None:
    kept = Checkpoints(None)
    kept.write(ARRAYS)
    assert kept.read() is None
    assert not kept.is_due()


def test_another_training_is_not_taken_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Checkpoints(tmp_path, "one").write(ARRAYS)
    assert Checkpoints(tmp_path, "other").read() is None
    assert "another training" in caplog.text


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, "a training")
    kept.write(ARRAYS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = kept.read()
        # A blank of the header's padding carries nothing.
        assert found is None or all(np.array_equal(found[name], array) for name, array in ARRAYS.items()), place


@pytest.mark.parametrize("length", [0, 1, 7, 8, 40, -1])
def test_a_cut_file_is_not_used(length: int, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, "a training")
    kept.write(ARRAYS)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:length])
    assert kept.read() is None


def test_pieces_are_kept_in_files_of_their_own_and_found_again(tmp_path: Path) -> None:
    first = Pieces(Checkpoints(tmp_path, "a training"))
    for number in range(3):
        first.add(number, {"part": np.full(2, number)})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    second = Pieces(Checkpoints(tmp_path, "a training"))
    assert {number: arrays["part"][0] for number, arrays in second.done.items()} == {0: 0, 1: 1, 2: 2}
    second.add(3, {"part": np.full(2, 3)})
    assert sorted(path.name for path in tmp_path.iterdir())[:3] == names
    assert set(Pieces(Checkpoints(tmp_path, "a training")).done) == {0, 1, 2, 3}


def test_a_folder_that_is_cleared_meanwhile_does_not_stop_a_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, arrays: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(checkpoints, "write_arrays", gone)
    Checkpoints(tmp_path, "a training").write(ARRAYS)
    assert "training continues without a checkpoint" in caplog.text


def test_names_tell_options_seeds_and_data_apart() -> None:
    X = np.ones((2, 2), np.float32)
    names = {
        training_name({"a": 1}, 0, [X]),
        training_name({"a": 2}, 0, [X]),
        training_name({"a": 1}, 1, [X]),
        training_name({"a": 1}, 0, [X + 1]),
    }
    assert len(names) == 4
    assert training_name({"a": 1}, 0, [X.copy()]) in names
