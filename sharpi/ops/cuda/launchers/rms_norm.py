"""Launches the RMS-norm kernel."""

from math import gcd
from typing import Any, Final, NamedTuple

from sharpi.device.launch import Launch, Span, is_same_address, named
from sharpi.ops.cuda.matvec_layout import whole_warps

_BLOCK_COLUMNS: Final = 32


class NormArguments(NamedTuple):
    """The arguments of the kernel `rms_norm`."""

    x: Span
    weight: Span
    out: Span | None
    quantised: Span | None
    width: int
    groups: int
    groups_each: int
    weight_per_group: int
    epsilon: float
    planes: int


class NormTail(NamedTuple):
    """The arguments of an RMS norm that a matmul kernel applies to its result.

    They are NORM_TAIL of norm_row.cuh. By default there is no norm.
    """

    done: Span | None = None
    weight: Span | None = None
    out: Span | None = None
    quantised: Span | None = None
    epsilon: float = 0.0
    threads: int = 0
    planes: int = 0


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
    sizes = (width, groups, groups_each, weight_per_group, epsilon, planes)
    return Launch.of(
        "rms_norm",
        (tokens, groups // groups_each),
        whole_warps(-(-width // 2), 1024),
        NormArguments(x, weight, out, quantised, *sizes),
        [out, quantised],
    )


def with_tail(
    product: Launch, given: Any, result: tuple[Span | None, int], norm: Launch, counter: Span
) -> Launch | None:
    """Returns one launch for a matmul of one token and `norm`, the norm of its result.

    `given` are the matmul's arguments by name, with a field `norm`. `result` is the memory and
    width of its result. Returns None if `norm` is not a norm of this complete row. `counter` is an
    int32 with the value 0.
    """
    (row, width), of_norm = result, named(NormArguments, norm.arguments)
    is_whole = norm.grid == (1, 1, 1) and of_norm.groups == 1 and of_norm.width == width
    if not is_whole or not is_same_address(of_norm.x, row) or is_same_address(row, of_norm.out):
        return None
    tail = NormTail(
        *(counter, of_norm.weight, of_norm.out, of_norm.quantised),
        *(of_norm.epsilon, norm.block, of_norm.planes),
    )
    return product.extended(given._replace(norm=tail), counter, tail.out, tail.quantised)
