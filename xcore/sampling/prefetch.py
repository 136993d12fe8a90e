"""A hint to the processor, for kernels that jump about in large arrays and know early where they will go next."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

READ_AND_KEEP = (0, 3, 1)  # read access, all cache levels, data


@intrinsic
def prefetch(typing: Any, flat: Any, index: Any) -> Any:
    """Ask for the cache line of ``flat[index]``, an entry of a contiguous one-dimensional array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(start, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        signature_of = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = get_or_insert_function(builder.module, signature_of, "llvm.prefetch.p0")
        builder.call(function, [address, *(number(hint) for hint in READ_AND_KEEP)])
        return context.get_dummy_value()

    return types.void(flat, types.intp), codegen
