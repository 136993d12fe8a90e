"""Cholesky factorisation and solves that leave the interpreter free, so that threads can share the right-hand sides.

scipy's own wrappers of these LAPACK routines hold the interpreter lock; here the same routines are called through
the addresses that scipy publishes (``scipy.linalg.cython_lapack``). A call must run on one BLAS thread
(`xcore.numeric.parallel.single_threaded_blas`) for its bits not to depend on the machine's thread count.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np

from xcore.errors import ConfigError
from xcore.numeric.matrices import Float32, Float64

Matrix = TypeVar("Matrix", Float32, Float64)


@cache
def _lapack(name: str, n_arguments: int) -> Callable[..., None]:
    from numba.extending import get_cython_function_address

    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return prototype(get_cython_function_address("scipy.linalg.cython_lapack", name))


def _call(name: str, flags: bytes, *arguments: int | Matrix) -> int:
    """Call a LAPACK routine, all arguments by reference: ``name(*flags, *arguments, info)``; gives `info`."""
    info = ctypes.c_int(0)
    references = [
        *(ctypes.byref(ctypes.c_char(flag)) for flag in flags),
        *(ctypes.byref(ctypes.c_int(value)) if isinstance(value, int) else value.ctypes.data for value in arguments),
        ctypes.byref(info),
    ]
    _lapack(name, len(references))(*references)
    return info.value


def _precision(name: str, array: Matrix) -> str:
    """The letter by which LAPACK names the routines for an array that is to be overwritten."""
    letters = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
    if array.dtype not in letters or not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError(
            f"{name} is overwritten: it must be a writeable float32 or float64 array in C order, got {array.dtype}"
        )
    return letters[array.dtype]


def factorise(matrix: Matrix) -> Matrix:
    """Overwrite a symmetric positive definite matrix with its Cholesky factor.

    Parameters
    ----------
    matrix : float32 or float64 (d, d), C order
        Only the upper triangle is read and written: afterwards it holds U with ``UᵀU = matrix``. Cost O(d³ / 3).

    Returns
    -------
    float32 or float64 (d, d)
        The same array.
    """
    precision = _precision("matrix", matrix)
    d = len(matrix)
    # What C order calls the upper triangle is the lower one to Fortran.
    minor = _call(f"{precision}potrf", b"L", d, matrix, max(d, 1))
    if minor:
        raise ConfigError(
            f"the {d} x {d} matrix is not positive definite (leading minor {minor}): use a larger ridge, "
            "and look for features that are not finite"
        )
    return matrix


def solve(factor: Matrix, targets: Matrix) -> Matrix:
    """Overwrite `targets` (m, d; one right-hand side per row, C order) with the solutions; cost O(2 d² m)."""
    m, d = targets.shape
    _call(f"{_precision('targets', targets)}potrs", b"L", d, m, factor, max(d, 1), targets, max(d, 1))
    return targets


def solve_upper(factor: Matrix, targets: Matrix) -> Matrix:
    """Overwrite `targets` (m, d) with the solutions of ``U x = target``, half of what `solve` does; cost O(d² m)."""
    m, d = targets.shape
    _call(f"{_precision('targets', targets)}trtrs", b"LTN", d, m, factor, max(d, 1), targets, max(d, 1))
    return targets
