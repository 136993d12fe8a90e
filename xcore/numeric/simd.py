"""Sixteen float32 numbers, a cache line, as one value inside numba kernels.

Numba has no vector type, and its compiler does not turn short inner loops into vector code reliably, so this module
adds the few operations that our kernels need. LLVM maps them to whatever registers the machine has. Every lane is
computed by itself, in program order: its result depends neither on the width of the registers nor on its neighbours.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array

from xcore.numeric.matrices import Float32

LANES = 16

_VECTOR = ir.VectorType(ir.FloatType(), LANES)


# Classes are made by calls because numba is untyped, and a checked class cannot derive from what has no type. With its
# module's name, kernels in numba's cache find the type again.
_LanesType = type("_LanesType", (types.Type,), {"__module__": __name__})
_lanes = _LanesType(f"float32x{LANES}")
_as_vector = partialmethod(models.PrimitiveModel.__init__, be_type=_VECTOR)
register_model(_LanesType)(type("_LanesModel", (models.PrimitiveModel,), {"__init__": _as_vector}))


def _line_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Address of line ``args[1]`` of the flat float32 array ``args[0]``."""
    array = make_array(signature.args[0])(context, builder, args[0])
    first = builder.mul(args[1], ir.Constant(args[1].type, LANES))
    return builder.bitcast(builder.gep(array.data, [first]), _VECTOR.as_pointer())


def _splat(builder: Any, scalar: Any) -> Any:
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.IntType(32)(0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), everywhere)


@intrinsic
def load(typing: Any, array: Any, line: Any) -> Any:
    """Line `line` of a flat float32 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_line_pointer(context, builder, signature, args))
        value.align = 4
        return value

    return _lanes(array, types.intp), codegen


@intrinsic
def load_from(typing: Any, array: Any, first: Any) -> Any:
    """The numbers ``array[first : first + LANES]`` of a flat float32 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = builder.gep(make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        value = builder.load(builder.bitcast(start, _VECTOR.as_pointer()))
        value.align = 4
        return value

    return _lanes(array, types.intp), codegen


@intrinsic
def total(typing: Any, value: Any) -> Any:
    """The sum of all lanes: halves are added until one number is left, the same way on every machine."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half, value = LANES, args[0]
        while half > 1:
            half //= 2
            lower, upper = (
                ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(first, first + half)))
                for first in (0, half)
            )
            nothing = ir.Constant(value.type, ir.Undefined)
            value = builder.fadd(
                builder.shuffle_vector(value, nothing, lower), builder.shuffle_vector(value, nothing, upper)
            )
        return builder.extract_element(value, ir.IntType(32)(0))

    return types.float32(_lanes), codegen


@intrinsic
def store(typing: Any, array: Any, line: Any, value: Any) -> Any:
    """Overwrite line `line` of a flat float32 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _line_pointer(context, builder, signature, args)).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), codegen


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line that holds ``array[index]``, soon to be read."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        function = get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32]), "llvm.prefetch.p0"
        )
        builder.call(function, [address, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def splat(typing: Any, scalar: Any) -> Any:
    """The same number in every lane."""
    return _lanes(types.float32), lambda context, builder, signature, args: _splat(builder, args[0])


@intrinsic
def multiply_add(typing: Any, factor: Any, scalar: Any, addend: Any) -> Any:
    """``factor * scalar + addend``, where `scalar` is one number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        signature_of = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = get_or_insert_function(builder.module, signature_of, f"llvm.fmuladd.v{LANES}f32")
        return builder.call(function, [args[0], _splat(builder, args[1]), args[2]])

    return _lanes(_lanes, types.float32, _lanes), codegen


def _chosen(comparison: str) -> Any:
    """Lanes of `yes` where ``a <comparison> b``, else of `no`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(comparison, args[0], args[1]), args[2], args[3])

    @intrinsic
    def operation(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
        return _lanes(_lanes, _lanes, _lanes, _lanes), codegen

    return operation


where_greater = _chosen(">")


@njit(inline="always")
def maximum(a: Any, b: Any) -> Any:
    """The larger of the two, lane by lane."""
    return where_greater(a, b, a, b)


@njit(inline="always")
def minimum(a: Any, b: Any) -> Any:
    """The smaller of the two, lane by lane."""
    return where_greater(a, b, b, a)


@intrinsic
def any_greater(typing: Any, a: Any, b: Any) -> Any:
    """Whether ``a > b`` in some lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_ordered(">", args[0], args[1]), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(_lanes, _lanes), codegen


def _define_operator(symbol: Callable[[Any, Any], Any], instruction: str) -> None:
    @type_callable(symbol)
    def typed(context: Any) -> Any:
        return lambda a, b: _lanes if a == b == _lanes else None

    @lower_builtin(symbol, _lanes, _lanes)
    def lowered(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
_define_operator(operator.truediv, "fdiv")


@njit(inline="always")
def dot(a: Float32, a_first: int, b: Float32, b_first: int, n: int) -> np.float32:
    """Dot product of n numbers of two flat arrays, the first ones at the given places."""
    whole, result = n - n % LANES, np.float32(0)
    if whole:
        products = load_from(a, a_first) * load_from(b, b_first)
        for f in range(LANES, whole, LANES):
            products = products + load_from(a, a_first + f) * load_from(b, b_first + f)
        result = total(products)
    for f in range(whole, n):
        result += a[a_first + f] * b[b_first + f]
    return result


@njit(cache=True)
def aligned_lines(n_lines: int) -> Float32:
    """A flat float32 array of ``n_lines * LANES`` zeros that starts at a cache line."""
    padded = np.zeros((n_lines + 1) * LANES, np.float32)
    skipped = (-padded.ctypes.data // 4) % LANES
    return padded[skipped : skipped + n_lines * LANES]
