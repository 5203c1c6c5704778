"""Launches the kernel that chooses experts from router logits."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import (
    Argument,
    Kernel,
    Launch,
    Span,
    argument_indices,
    flat,
)
from sharpi.ops.cuda.matvec_layout import BLOCK
from sharpi.ops.interface import Scoring


class RouterArguments(NamedTuple):
    """How to choose experts from logits, and how many (ROUTER of route.cuh)."""

    bias: Argument = None
    experts: Argument = np.int32(0)
    used: Argument = np.int32(0)
    scoring: Argument = np.int32(0)
    normalise: Argument = np.int32(0)
    scale: Argument = np.float32(0)
    num_groups: Argument = np.int32(0)
    groups_used: Argument = np.int32(0)


class RouteChoice(NamedTuple):
    """A choice of experts, and where the chosen ones are written."""

    ids: Argument = None
    weights: Argument = None
    route_time: Argument = None
    router: RouterArguments = RouterArguments()


class RouteArguments(NamedTuple):
    """The arguments of the kernel `route`."""

    logits: Argument
    choice: RouteChoice


class RouteTail(NamedTuple):
    """The arguments by which a matmul kernel chooses experts from its result.

    They are RouteTail of matvec.cu. By default no experts are chosen.
    """

    done: Argument = None
    choice: RouteChoice = RouteChoice()


def route(
    logits: Span,
    bias: Span | None,
    ids: Span,
    weights: Span,
    *,
    tokens: int,
    experts: int,
    used: int,
    scoring: Scoring,
    normalise: bool,
    scale: float,
    num_groups: int,
    groups_used: int,
    route_time: Span | None = None,
) -> Launch:
    """Chooses ids int32 and weights (T, used), best first, from logits (T, experts).

    There are at most 512 experts, of which at most 32 are used. `bias` (experts,) is added for the
    choice only. The rules are those of `reference.choose_experts`; ids are distinct even where
    logits are NaN. `route_time`, an int64, receives the time at which the first token has experts.
    """
    router = RouterArguments(
        *(bias, np.int32(experts), np.int32(used), np.int32(scoring)),
        *(np.int32(normalise), np.float32(scale), np.int32(num_groups), np.int32(groups_used)),
    )
    choice = RouteChoice(ids, weights, route_time, router)
    return Launch(
        Kernel("route", "route"),
        grid=(tokens, 1, 1),
        block=32,
        arguments=flat(RouteArguments(logits, choice)),
        writes=argument_indices(
            RouteArguments, "choice.ids", "choice.weights", "choice.route_time"
        ),
    )


_BLOCK = 256


def group_routes(
    ids: Span, offsets: Span, items: Span, *, tokens: int, used: int, experts: int
) -> Launch:
    """Lists items by expert: expert e has items[offsets[e]:offsets[e + 1]], in ascending order.

    `ids` (T, used), `offsets` (experts + 1,) and `items` (T * used,) are int32. Item t * used + r
    is the r-th expert of token t.
    """
    return Launch(
        Kernel("group_routes", "group_routes"),
        grid=(experts, 1, 1),
        block=_BLOCK,
        arguments=(ids, offsets, items, np.int32(tokens * used), np.int32(experts)),
        writes=frozenset({1, 2}),
    )


def merge_group(
    values: Span,
    ids: Span,
    item_rows: Span | None,
    weights: Span | None,
    sums: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    experts: range,
    num_experts: int,
    residual: Span | None = None,
    scale: float = 1.0,
) -> Launch:
    """Adds the values of a group of experts to sums (T, rows); groups must come in ascending order.

    After the last of `num_experts` experts the result is that of `experts_grouped.merge`.
    `item_rows` (T * used,) has the row of each item in `values`, -1 for none; without it, row i
    belongs to item i.
    """
    stages = experts.start == 0, experts.stop == num_experts
    return Launch(
        Kernel("experts_group_merge", "experts_group_merge"),
        grid=(tokens, -(-rows // BLOCK), 1),
        block=BLOCK,
        arguments=(
            *(values, ids, item_rows, weights, residual, sums, np.float32(scale)),
            *map(np.int32, (used, rows, experts.start, experts.stop, *stages)),
        ),
        writes=frozenset({5}),
    )


def pack_routes(
    offsets: Span,
    items: Span,
    packed_offsets: Span,
    packed_items: Span,
    item_rows: Span,
    is_over: Span,
    *,
    experts: int,
    num_items: int,
    capacity: int,
) -> Launch:
    """Assigns the items of a group of `experts` adjacent experts to a buffer of `capacity` rows.

    `offsets`, from the first of these experts on, and `items` come from `group_routes`. The kernel
    writes the same lists for the buffer's rows, and to `item_rows` each item's row, or -1 if no row
    is left. It sets `is_over` to 1 if there are more items than rows.
    """
    return Launch(
        Kernel("pack_routes", "pack_routes"),
        grid=(-(-max(num_items, experts + 1) // BLOCK), 1, 1),
        block=BLOCK,
        arguments=(
            *(offsets, items, packed_offsets, packed_items, item_rows, is_over),
            *map(np.int32, (experts, capacity)),
        ),
        writes=frozenset({2, 3, 4, 5}),
    )
