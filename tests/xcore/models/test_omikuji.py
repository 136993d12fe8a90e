from __future__ import annotations

import builtins
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.omikuji import FittedOmikuji, Omikuji
from xcore.numeric.matrices import CSR, NO_LABEL, csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData


def sparse(dense: np.ndarray) -> CSR:
    matrix = sp.csr_array(dense.astype(np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def own_feature_data(n: int = 60, n_labels: int = 6) -> TrainingData:
    """Each row has one label and the feature of that label."""
    rows = np.eye(n_labels)[np.arange(n) % n_labels]
    return TrainingData.of(sparse(rows), sparse(rows))


@pytest.fixture(scope="module")
def fitted() -> FittedOmikuji:
    pytest.importorskip("omikuji")
    return Omikuji(n_trees=2).fit(own_feature_data(), FitContext(rng=np.random.default_rng(0)))


def test_each_row_is_given_its_label(fitted: FittedOmikuji) -> None:
    top = fitted.predict_topk(own_feature_data().X, 8)
    assert np.array_equal(top.labels[:, 0], np.arange(60) % 6)
    assert (top.labels[:, 6:] == NO_LABEL).all()
    assert (np.diff(top.scores[:, :6], axis=1) <= 0).all()


def test_a_saved_model_predicts_the_same_but_for_the_last_bit(fitted: FittedOmikuji, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    X = own_feature_data().X
    loaded = Omikuji.load(tmp_path)
    assert (loaded.n_features, loaded.n_labels, loaded.beam) == (6, 6, 10)
    np.testing.assert_allclose(loaded.predict_topk(X, 2).scores, fitted.predict_topk(X, 2).scores, rtol=1e-6)


def test_a_tree_that_was_changed_is_refused_before_the_library_reads_it(fitted: FittedOmikuji, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    tree = tmp_path / "tree1.cbor"
    content = bytearray(tree.read_bytes())
    content[len(content) // 2] ^= 0xFF
    tree.write_bytes(content)
    with pytest.raises(ArtifactDamaged, match=r"tree1\.cbor was changed"):
        Omikuji.load(tmp_path)


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("omikuji")
    Omikuji(n_trees=1).fit(own_feature_data(12, 3), FitContext(rng=np.random.default_rng(0)))
    assert "Training" not in "".join(capfd.readouterr())


def test_a_positive_of_small_weight_is_mostly_left_out() -> None:
    pytest.importorskip("omikuji")
    data = own_feature_data(600, 2)
    doubted = data.Y.toarray()
    doubted[:, 1] = np.maximum(doubted[:, 1], 0.05)
    top = Omikuji(n_trees=1).fit(TrainingData.of(data.X, sparse(doubted)), FitContext(rng=np.random.default_rng(0)))
    assert top.predict_topk(sparse(np.eye(2)), 1).labels[:, 0].tolist() == [0, 1]


def test_rows_of_another_width_are_refused(fitted: FittedOmikuji) -> None:
    with pytest.raises(ConfigError, match="trained on 6 features, got rows with 2"):
        fitted.predict_topk(sparse(np.eye(2)), 1)


def test_a_missing_library_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_omikuji(name: str, *rest: object) -> object:
        if name == "omikuji":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "omikuji", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_omikuji)
    with pytest.raises(ConfigError, match=r"eyrie\[omikuji\]"):
        Omikuji().fit(own_feature_data(), FitContext(rng=np.random.default_rng(0)))
