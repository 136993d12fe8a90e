"""A memory answers by similarity: its formula, its search, its evidence, and labels that come later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.contracts.test_models import planted
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.base import Extensible
from xcore.models.memory import Memory
from xcore.models.memory.fitted import FittedMemory
from xcore.numeric.arrays import open_arrays, write_arrays
from xcore.search.graph import Graph
from xcore.search.keys import Keys, unit_rows
from xcore.training.data import LabelSide, TrainingData

N_LABELS, DIMENSIONS = 30, 12


def vectors(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, DIMENSIONS)).astype(np.float32)


NAMES = vectors(N_LABELS, 99)


def rows(n: int, seed: int, n_labels: int = N_LABELS) -> tuple[np.ndarray, np.ndarray]:
    """Rows near the sum of the names of their one or two labels."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, N_LABELS), np.float32)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 3), replace=False)] = 1
    return (unit_rows(Y @ NAMES) + 0.1 * vectors(n, seed + 1)).astype(np.float32), Y


def data(n: int = 200, named: bool = True, dev: bool = False) -> TrainingData:
    X, Y = rows(n, 0)
    side = LabelSide([f"label {number}" for number in range(N_LABELS)], NAMES) if named else None
    return TrainingData.of(X, Y, dev=rows(80, 5) if dev else None, labels=side)


def memory(options: Memory, training: TrainingData) -> FittedMemory:
    fitted = options.fit(training)
    assert isinstance(fitted, FittedMemory)
    return fitted


def test_scores_are_those_of_the_formula() -> None:
    X, Y = rows(200, 0)
    Y[3] = 0
    Y[5, Y[5] > 0] = 0.25
    side = LabelSide(["name"] * N_LABELS, NAMES)
    options = Memory(temperature=0.2, row_share=0.7, n_neighbours=40)
    fitted = memory(options, TrainingData.of(X, Y, labels=side))
    queries, _ = rows(25, 7)
    keys = np.concatenate([unit_rows(np.delete(X, 3, axis=0)), unit_rows(NAMES)]).astype(np.float64)
    values = np.concatenate([0.7 * np.delete(Y, 3, axis=0), 0.3 * np.eye(N_LABELS)])
    cosines = unit_rows(queries) @ keys.T
    nearest = np.argsort(-cosines, axis=1)[:, :40]
    for row, own in enumerate(nearest):
        weights = np.exp(cosines[row, own] / 0.2)
        expected = weights / weights.sum() @ values[own]
        top = fitted.predict_topk(queries[[row]], 5)
        np.testing.assert_allclose(top.scores[0], -np.sort(-expected)[:5], rtol=1e-4)
        np.testing.assert_allclose(expected[top.labels[0]], top.scores[0], rtol=1e-4)


def test_evidence_names_rows_and_labels_and_their_shares() -> None:
    fitted = memory(Memory(n_neighbours=20), data())
    queries, _ = rows(6, 7)
    evidence = fitted.evidence(queries, 20)
    assert np.array_equal(evidence.rows < 0, evidence.labels >= 0), "a key is a row or a name"
    assert (evidence.labels >= 0).any()
    np.testing.assert_allclose(evidence.weights.sum(axis=1), 1)
    assert (np.diff(evidence.weights, axis=1) <= 1e-12).all()
    name = fitted.evidence(NAMES[[4]], 1)
    assert (name.labels[0, 0], name.rows[0, 0]) == (4, -1), "a name is its own nearest key"
    X, _ = rows(200, 0)
    assert fitted.evidence(X[[17]], 1).rows[0, 0] == 17, "and so is a training row"


def test_dev_rows_choose_the_settings_that_are_not_given() -> None:
    chosen = memory(Memory(), data(dev=True)).settings
    kept = memory(Memory(temperature=0.5, n_neighbours=7), data(dev=True)).settings
    assert (kept.temperature, kept.n_neighbours) == (0.5, 7)
    assert memory(Memory(), data()).settings == (0.05, 0.5, 200)
    assert chosen != (0.05, 0.5, 200)
    assert memory(Memory(), data(named=False, dev=True)).settings.row_share == 1.0


def test_without_names_it_works_on_rows_alone_or_says_what_is_missing() -> None:
    X, Y = rows(50, 7)
    only_ids = TrainingData.of(*rows(200, 0), labels=LabelSide(["1"] * N_LABELS, NAMES, is_named=False))
    for training in (data(named=False), only_ids):
        top = memory(Memory(), training).predict_topk(X, 1)
        assert (Y[np.arange(50), top.labels[:, 0]] > 0).mean() > 0.8
        with pytest.raises(ConfigError, match="label_names is required, but the labels have no names"):
            Memory(label_names="required").fit(training)
    with pytest.raises(ConfigError, match="none of the 5 training rows has a label"):
        Memory().fit(TrainingData.of(X[:5], np.zeros((5, 3))))


def test_a_label_that_no_row_has_is_found_by_its_name() -> None:
    X, Y = rows(200, 0, n_labels=N_LABELS - 5)
    side = LabelSide(["name"] * N_LABELS, NAMES)
    fitted = memory(Memory(), TrainingData.of(X, Y, labels=side))
    unseen = NAMES[-5:] + 0.05 * vectors(5, 3)
    assert fitted.predict_topk(unseen, 1).labels[:, 0].tolist() == list(range(N_LABELS - 5, N_LABELS))


@pytest.mark.parametrize("exact_below", [1000, 0])
def test_labels_that_come_later_are_predicted_at_once(exact_below: int) -> None:
    if not exact_below:
        pytest.importorskip("faiss")
    known = N_LABELS - 5
    X, Y = rows(200, 0, n_labels=known)
    side = LabelSide(["name"] * known, NAMES[:known])
    fitted = memory(Memory(exact_below=exact_below), TrainingData.of(X, Y[:, :known], labels=side))
    assert isinstance(fitted, Extensible)
    assert fitted.n_labels == known
    extended = fitted.with_labels(LabelSide(["new"] * 5, NAMES[known:]))
    assert extended.n_labels == N_LABELS
    unseen = NAMES[known:] + 0.05 * vectors(5, 3)
    assert extended.predict_topk(unseen, 1).labels[:, 0].tolist() == list(range(known, N_LABELS))
    whole = memory(
        Memory(exact_below=1000), TrainingData.of(X, Y, labels=LabelSide(["name"] * N_LABELS, NAMES))
    ).predict_topk(X, 3)
    found = extended.predict_topk(X, 3)
    assert (found.labels == whole.labels).mean() > 0.98, "as if they had been there from the start"


def test_new_labels_need_names_in_the_space_of_the_rows() -> None:
    with pytest.raises(ConfigError, match="new labels need their names as rows"):
        memory(Memory(), data()).with_labels(LabelSide(["new"]))
    with pytest.raises(ConfigError, match="new labels need a memory that knows label names"):
        memory(Memory(), data(named=False)).with_labels(LabelSide(["new"], NAMES[:1]))


def test_a_memory_of_sparse_rows_embeds_new_labels_too() -> None:
    training = planted()
    names = planted(12, seed=3).X
    fitted = memory(Memory(), TrainingData.of(training.X, training.Y, labels=LabelSide(["name"] * 12, names)))
    assert fitted.form == "sparse"
    assert fitted.with_labels(LabelSide(["new"], planted(1, seed=4).X)).n_labels == 13


class TestGraph:
    @pytest.fixture(autouse=True)
    def _needs_faiss(self) -> None:
        pytest.importorskip("faiss", reason="the extra eyrie[memory] is not installed")

    def test_most_of_the_nearest_are_found_and_recall_is_reported(self) -> None:
        fitted = memory(Memory(exact_below=0, n_neighbours=30), data(3000))
        queries, _ = rows(100, 7)
        recall = fitted.shortlist_recall(queries, 5)
        assert recall is not None
        assert recall > 0.95
        assert memory(Memory(), data()).shortlist_recall(queries, 5) is None
        poor = memory(Memory(exact_below=0, n_neighbours=30, search_width=1), data(3000))
        exact = poor.keys.exact().nearest(unit_rows(queries), 30, 1)
        found = poor.keys.nearest(unit_rows(queries), 30, 1)
        same = [len(np.intersect1d(own, other)) for own, other in zip(found.ids, exact.ids, strict=True)]
        assert np.mean(same) > 15
        np.testing.assert_allclose(found.cosines[:, 0], exact.cosines[:, 0], atol=1e-5)

    def test_a_saved_graph_finds_the_same(self, tmp_path: Path) -> None:
        fitted = memory(Memory(exact_below=0), data())
        fitted.save(tmp_path)
        loaded = Memory.load(tmp_path)
        queries, _ = rows(20, 7)
        new = LabelSide(["new"] * 3, vectors(3, 8))
        for one, other in ((fitted, loaded), (fitted.with_labels(new), loaded.with_labels(new))):
            found, expected = one.predict_topk(queries, 4), other.predict_topk(queries, 4)
            assert np.array_equal(found.labels, expected.labels)
            assert np.array_equal(found.scores, expected.scores)

    def test_links_that_lead_out_of_their_level_are_refused(self, tmp_path: Path) -> None:
        graph = Graph.build(unit_rows(vectors(2000, 0)))
        assert graph.levels.max() > 1
        memory(Memory(exact_below=0), data()).save(tmp_path)
        path = tmp_path / "memory.safetensors"
        arrays = {name: array.copy() for name, array in open_arrays(path).items()}
        high = int(np.argmax(arrays["graph.levels"]))
        low = int(np.argmin(arrays["graph.levels"]))
        arrays["graph.neighbours"][arrays["graph.offsets"][high] + 32] = low
        write_arrays(path, arrays)
        with pytest.raises(ArtifactDamaged, match="not on the level of the link"):
            Memory.load(tmp_path)

    def test_a_graph_is_built_alike_each_time(self) -> None:
        X = unit_rows(vectors(500, 0))
        first, second = Graph.build(X).arrays(), Graph.build(X).arrays()
        assert all(np.array_equal(first[name], second[name]) for name in first)


def test_the_nearest_come_first_and_of_equal_ones_the_lower() -> None:
    keys = np.array([[0, 1], [1, 0], [1, 0], [0.6, 0.8]], np.float32)
    near = Keys(keys).nearest(np.array([[1, 0]], np.float32), 10, 1)
    assert near.ids.tolist() == [[1, 2, 3, 0]]
    assert near.cosines[0] == pytest.approx([1, 1, 0.6, 0])
