"""Sums of short vectors, several values at once; Numba's own short loops add value by value."""

# mypy: allow-untyped-calls, allow-untyped-defs
from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

# Values that are added at once: one vector register holds them, or two.
LANES = 8


def _lanes(builder, array, place, kind):
    """Where ``LANES`` values of an array lie together."""
    whole = ir.VectorType(ir.DoubleType() if kind.dtype == types.float64 else ir.FloatType(), LANES)
    return builder.bitcast(builder.gep(array.data, [place]), whole.as_pointer())


def _start(builder, starts, number, row):
    """``starts[number, row]``."""
    at = builder.add(builder.mul(number, cgutils.unpack_tuple(builder, starts.shape)[1]), row)
    return builder.zext(builder.load(builder.gep(starts.data, [at])), ir.IntType(64))


@intrinsic
def add_up(_, sums, values, starts, _row, last, _place):
    """For compiled loops: ``add_up(sums, values, starts, row, last, i)`` sets ``sums[i : i + LANES]``.

    They become sums of ``values[j + i : j + i + LANES]`` over all ``j`` in ``starts[:, row]``, in that order, and then
    of ``last[i : i + LANES]``. Nothing checks that these exist. ``sums``, ``values`` and ``last`` are float32,
    ``starts`` is uint32, each of them one piece of memory.
    """

    def generate(context, builder, signature, arguments):
        kinds, (_, _, _, at, _, i) = signature.args, arguments
        into, addends, places, end = (
            context.make_array(kinds[n])(context, builder, arguments[n]) for n in (0, 1, 2, 4)
        )
        total = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(ir.FloatType(), LANES), [0.0] * LANES))
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, places.shape)[0]) as loop:
            start = builder.add(_start(builder, places, loop.index, at), i)
            addend = builder.load(_lanes(builder, addends, start, kinds[1]), align=4)
            builder.store(builder.fadd(builder.load(total), addend), total)
        whole = builder.fadd(builder.load(total), builder.load(_lanes(builder, end, i, kinds[4]), align=4))
        builder.store(whole, _lanes(builder, into, i, kinds[0]), align=4)
        return context.get_dummy_value()

    return types.void(sums, values, starts, types.int64, last, types.int64), generate


@intrinsic
def change_all(_, values, starts, _row, change, factors, _place):
    """For compiled loops: ``change_all(values, starts, row, change, factors, i)`` changes lines of ``values``.

    To ``values[j + i : j + i + LANES]`` is added ``factors[n] * change[i : i + LANES]``, where j is ``starts[n, row]``,
    for all n. ``values``, ``change`` and ``factors`` are of one type; else as of :func:`add_up`.
    """

    def generate(context, builder, signature, arguments):
        kinds, (_, _, at, _, _, i) = signature.args, arguments
        into, places, step, parts = (context.make_array(kinds[n])(context, builder, arguments[n]) for n in (0, 1, 3, 4))
        aligned = kinds[0].dtype.bitwidth // 8
        once = builder.load(_lanes(builder, step, i, kinds[3]), align=aligned)
        none = ir.Constant(once.type, ir.Undefined)
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, places.shape)[0]) as loop:
            factor = builder.load(builder.gep(parts.data, [loop.index]))
            first = builder.insert_element(none, factor, ir.IntType(32)(0))
            factor = builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
            line = _lanes(builder, into, builder.add(_start(builder, places, loop.index, at), i), kinds[0])
            changed = builder.fadd(builder.load(line, align=aligned), builder.fmul(once, factor))
            builder.store(changed, line, align=aligned)
        return context.get_dummy_value()

    return types.void(values, starts, types.int64, change, factors, types.int64), generate
