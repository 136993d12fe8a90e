from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.data.features import Features, FeatureWriter
from xcore.errors import ConfigError
from xcore.numeric.matrices import csr


def random_rows(n: int, seed: int) -> sp.csr_array:
    matrix = sp.random_array((n, 30), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))
    return csr(matrix.data, matrix.indices, matrix.indptr, 30)


def test_features_written_in_blocks_are_read_back_whole(tmp_path: Path) -> None:
    blocks = [random_rows(n, n) for n in (5, 0, 40)]
    with FeatureWriter(tmp_path, 30) as writer:
        for block in blocks:
            writer.write("train", block)
        writer.write("test", blocks[0])
    assert writer.rows == {"train": 45, "test": 5}
    features = Features(tmp_path)
    assert (features.form, features.n_features) == ("sparse", 30)
    np.testing.assert_array_equal(features.sparse("train").toarray(), np.vstack([block.toarray() for block in blocks]))
    np.testing.assert_array_equal(features.sparse("test").toarray(), blocks[0].toarray())


def test_a_split_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path, 30) as writer:
        writer.write("train", random_rows(3, 0))
    with pytest.raises(ConfigError, match="has no test split, only train"):
        Features(tmp_path).sparse("test")


def test_dense_rows_are_dense_and_become_sparse_only_when_asked_so(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    rows[4, 1] = 0
    with FeatureWriter(tmp_path, 3) as writer:
        writer.write("train", rows[:7])
        writer.write("train", rows[7:])
    features = Features(tmp_path)
    assert features.form == "vector"
    assert features.dense("train").dtype == np.float32
    np.testing.assert_array_equal(features.dense("train"), rows)
    np.testing.assert_array_equal(np.vstack(list(features.blocks("train"))), rows)
    np.testing.assert_array_equal(features.sparse("train").toarray(), rows)


def test_sparse_rows_are_not_made_dense(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path, 30) as writer:
        writer.write("train", random_rows(3, 0))
    with pytest.raises(ConfigError, match=r"holds sparse rows, not vector rows: sparse\(\) gives them"):
        Features(tmp_path).dense("train")
