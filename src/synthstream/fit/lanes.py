"""Sums of short vectors, several values at once; Numba's own short loops add value by value."""

# mypy: allow-untyped-calls, allow-untyped-defs
from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

# Values that are added at once: one vector register holds them, or two.
LANES = 8


@intrinsic
def add_up(_, sums, values, starts, __):
    """For compiled loops: ``add_up(sums, values, starts, i)`` sets ``sums[i : i + LANES]``.

    They become sums of ``values[j + i : j + i + LANES]`` over all ``j`` in ``starts``, in that order. Nothing checks
    that these exist. ``sums`` and ``values`` are float32, ``starts`` int64, all of them one piece of memory each.
    """

    def generate(context, builder, signature, arguments):
        into, addends, places = (
            context.make_array(kind)(context, builder, argument)
            for kind, argument in zip(signature.args[:3], arguments[:3], strict=True)
        )
        vector = ir.VectorType(ir.FloatType(), LANES)
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))

        def lanes(array, place):
            return builder.bitcast(builder.gep(array.data, [place]), vector.as_pointer())

        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, places.shape)[0]) as loop:
            start = builder.load(builder.gep(places.data, [loop.index]))
            addend = builder.load(lanes(addends, builder.add(start, arguments[3])), align=4)
            builder.store(builder.fadd(builder.load(total), addend), total)
        builder.store(builder.load(total), lanes(into, arguments[3]), align=4)
        return context.get_dummy_value()

    return types.void(sums, values, starts, types.int64), generate
