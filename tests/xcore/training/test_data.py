"""Matrices on their way to a model."""

import numpy as np
import scipy.sparse as sp

from xcore.training.data import canonical_csr


def test_a_matrix_with_repeated_entries_is_added_up_and_stays_as_it_was() -> None:
    arrays = np.ones(4, np.float32), np.array([4, 1, 4, 2], np.int32), np.array([0, 3, 3, 4])
    given = sp.csr_array((3, 6), dtype=np.float32)
    given.data, given.indices, given.indptr = arrays
    found = canonical_csr(given)
    assert found.toarray()[0].tolist() == [0, 1, 0, 0, 2, 0]
    assert given.indptr.tolist() == [0, 3, 3, 4]
    assert given.indices.tolist() == [4, 1, 4, 2]
