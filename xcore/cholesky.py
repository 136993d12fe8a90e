"""Cholesky factorisation and solves that leave the interpreter free, so that threads can share the right-hand sides.

scipy's own wrappers of these two LAPACK routines hold the interpreter lock; here the same routines are called through
the addresses that scipy publishes (``scipy.linalg.cython_lapack``). A call must run on one BLAS thread
(`xcore.kernels.single_threaded_blas`) for its bits not to depend on the machine's thread count.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from xcore.errors import ConfigError
from xcore.matrices import Float64


@cache
def _lapack(name: str, n_arguments: int) -> Callable[..., None]:
    from numba.extending import get_cython_function_address

    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return prototype(get_cython_function_address("scipy.linalg.cython_lapack", name))


def _call(name: str, *arguments: int | Float64) -> int:
    """Call a LAPACK routine on the lower triangle: ``name('L', *arguments, info)``, all by reference; gives `info`."""
    triangle, info = ctypes.c_char(b"L"), ctypes.c_int(0)
    numbers = [ctypes.c_int(value) if isinstance(value, int) else value for value in arguments]
    references = [ctypes.byref(value) if isinstance(value, ctypes.c_int) else value.ctypes.data for value in numbers]
    _lapack(name, len(references) + 2)(ctypes.byref(triangle), *references, ctypes.byref(info))
    return info.value


def _require(name: str, array: Float64) -> None:
    if array.dtype != np.float64 or not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError(f"{name} is overwritten: it must be a writeable float64 array in C order, got {array.dtype}")


def factorise(matrix: Float64) -> Float64:
    """Overwrite a symmetric positive definite matrix with its Cholesky factor.

    Parameters
    ----------
    matrix : float64 (d, d), C order
        Only the upper triangle is read and written: afterwards it holds U with ``UᵀU = matrix``. Cost O(d³ / 3).

    Returns
    -------
    float64 (d, d)
        The same array.
    """
    _require("matrix", matrix)
    d = len(matrix)
    # What C order calls the upper triangle is the lower one to Fortran.
    minor = _call("dpotrf", d, matrix, max(d, 1))
    if minor:
        raise ConfigError(
            f"the {d} x {d} matrix is not positive definite (leading minor {minor}): use a larger ridge, "
            "and look for features that are not finite"
        )
    return matrix


def solve(factor: Float64, targets: Float64) -> Float64:
    """Overwrite `targets` (m, d; one right-hand side a row, C order) with the solutions; cost O(2 d² m)."""
    _require("targets", targets)
    m, d = targets.shape
    _call("dpotrs", d, m, factor, max(d, 1), targets, max(d, 1))
    return targets
