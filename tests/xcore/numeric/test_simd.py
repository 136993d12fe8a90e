"""Vector values inside compiled kernels."""

import numpy as np
import pytest

from xcore.numeric.simd import LANES, dot


@pytest.mark.parametrize("n", [0, 1, LANES - 1, LANES, LANES + 3, 5 * LANES])
def test_a_dot_product_takes_n_numbers_from_any_place(n: int) -> None:
    a, b = np.random.default_rng(n).integers(-9, 9, (2, 200)).astype(np.float32)
    assert dot(a, 7, b, 21, n) == a[7 : 7 + n] @ b[21 : 21 + n]


def test_a_dot_product_has_the_same_bits_wherever_its_numbers_stand() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 100)).astype(np.float32)
    shifted = np.concatenate([np.zeros(5, np.float32), a])
    assert dot(a, 0, b, 0, 100) == dot(shifted, 5, b, 0, 100)
