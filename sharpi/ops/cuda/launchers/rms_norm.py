"""Launches the RMS-norm kernel."""

from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from sharpi.device.launch import (
    Argument,
    Kernel,
    Launch,
    Span,
    argument_indices,
    flat,
    is_same_address,
    named,
)
from sharpi.ops.cuda.matvec_layout import whole_warps

_BLOCK_COLUMNS: Final = 32


class NormArguments(NamedTuple):
    """The arguments of the kernel `rms_norm`."""

    x: Argument
    weight: Argument
    out: Argument
    quantised: Argument
    width: Argument
    groups: Argument
    groups_each: Argument
    weight_per_group: Argument
    epsilon: Argument
    planes: Argument


class NormTail(NamedTuple):
    """The arguments of an RMS norm that a matmul kernel applies to its result.

    They are NORM_TAIL of norm_row.cuh. By default there is no norm.
    """

    done: Argument = None
    weight: Argument = None
    out: Argument = None
    quantised: Argument = None
    epsilon: Argument = np.float32(0)
    threads: Argument = np.int32(0)
    planes: Argument = np.int32(0)


NO_NORM: Final = NormTail()


def rms_norm(
    x: Span,
    weight: Span,
    out: Span | None,
    quantised: Span | None,
    *,
    tokens: int,
    width: int,
    groups: int,
    weight_per_group: bool,
    epsilon: float,
    planes: int,
) -> Launch:
    """Computes x (T, groups * width) / rms of each group * weight (width,) or (groups * width,).

    The result is written as floats to `out`, which may be x, and/or quantised to `quantised`
    (see `quantise`), for which groups * width is a multiple of 32.
    """
    groups_each = 1 if quantised is None else _BLOCK_COLUMNS // gcd(width, _BLOCK_COLUMNS)
    return Launch(
        Kernel("rms_norm", "rms_norm"),
        grid=(tokens, groups // groups_each, 1),
        block=whole_warps(-(-width // 2), 1024),
        arguments=flat(
            NormArguments(
                *(x, weight, out, quantised),
                *(np.int32(width), np.int32(groups), np.int32(groups_each)),
                *(np.int32(weight_per_group), np.float32(epsilon), np.int32(planes)),
            )
        ),
        writes=argument_indices(NormArguments, "out", "quantised", *(["x"] if out == x else [])),
    )


def with_tail(product: Launch, given: Any, tail: NormTail) -> Launch:
    """Returns the launch `product` with the norm `tail` added, which is applied to its result.

    `given` are the arguments of `product` by name.
    """
    kind: Any = type(given)
    return replace(
        product,
        arguments=flat(given._replace(norm=tail)),
        writes=product.writes | argument_indices(kind, "norm.done", "norm.out", "norm.quantised"),
    )


def norm_tail(norm: Launch, row: Argument, width: Argument, counter: Span) -> NormTail | None:
    """Returns the arguments by which a matmul kernel for one token applies the launch `norm`.

    `row` is the matmul's result, of `width` values. Returns None if `norm` is not a norm of the
    complete row. `counter` is an int32 with the value 0.
    """
    given = named(NormArguments, norm.arguments)
    is_whole = norm.grid == (1, 1, 1) and given.groups == 1 and given.width == width
    if not is_whole or not is_same_address(given.x, row) or is_same_address(given.x, given.out):
        return None
    return NormTail(
        done=counter,
        weight=given.weight,
        out=given.out,
        quantised=given.quantised,
        epsilon=given.epsilon,
        threads=np.int32(norm.block),
        planes=given.planes,
    )
