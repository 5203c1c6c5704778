"""Launches the kernel that chooses experts from router logits."""

from typing import NamedTuple

from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts.experts import RoutedSum
from sharpi.ops.cuda.matvec_layout import BLOCK
from sharpi.ops.interface import Router


class RouterArguments(NamedTuple):
    """How to choose experts from logits, and how many (ROUTER of route.cuh)."""

    bias: Span | None = None
    experts: int = 0
    used: int = 0
    scoring: int = 0
    normalise: int = 0
    scale: float = 0.0
    num_groups: int = 0
    groups_used: int = 0


class RouteChoice(NamedTuple):
    """A choice of experts, and where the chosen ones are written."""

    ids: Span | None = None
    weights: Span | None = None
    route_time: Span | None = None
    router: RouterArguments = RouterArguments()


class RouteArguments(NamedTuple):
    """The arguments of the kernel `route`."""

    logits: Span
    choice: RouteChoice


class RouteTail(NamedTuple):
    """The arguments by which a matmul kernel chooses experts from its result.

    They are RouteTail of matvec.cu. By default no experts are chosen.
    """

    done: Span | None = None
    choice: RouteChoice = RouteChoice()


def route(
    logits: Span,
    bias: Span | None,
    ids: Span,
    weights: Span,
    router: Router,
    *,
    tokens: int,
    route_time: Span | None = None,
) -> Launch:
    """Chooses ids int32 and weights (T, used), best first, from logits (T, experts).

    There are at most 512 experts, of which at most 32 are used. `bias` (experts,) is that of the
    router on the GPU. The rules are those of `reference.choose_experts`; ids are distinct even
    where logits are NaN. `route_time`, an int64, receives the time at which the first token has
    experts.
    """
    r = router
    rules = RouterArguments(
        *(bias, r.num_experts, r.num_used, r.scoring, r.normalise, r.scale),
        *(r.num_groups, r.groups_used),
    )
    choice = RouteChoice(ids, weights, route_time, rules)
    written = (ids, weights, route_time)
    return Launch.of("route", (tokens,), 32, RouteArguments(logits, choice), written)


def group_routes(
    ids: Span, offsets: Span, items: Span, *, tokens: int, used: int, experts: int
) -> Launch:
    """Lists items by expert: expert e has items[offsets[e]:offsets[e + 1]], in ascending order.

    `ids` (T, used), `offsets` (experts + 1,) and `items` (T * used,) are int32. Item t * used + r
    is the r-th expert of token t.
    """
    arguments = (ids, offsets, items, tokens * used, experts)
    return Launch.of("group_routes", (experts,), BLOCK, arguments, [offsets, items])


def merge_group(
    values: Span, item_rows: Span | None, total: RoutedSum, *, experts: range, num_experts: int
) -> Launch:
    """Adds the values of a group of experts to `total.out`; groups must come in ascending order.

    After the last of `num_experts` experts the result is that of `experts_grouped.merge`.
    `item_rows` (T * used,) has the row of each item in `values`, -1 for none; without it, row i
    belongs to item i.
    """
    stages = experts.start == 0, experts.stop == num_experts
    t, items = total, total.items
    return Launch.of(
        "experts_group_merge",
        (items.tokens, -(-t.rows // BLOCK)),
        BLOCK,
        (
            *(values, items.ids, item_rows, t.weights, t.residual, t.out, t.scale),
            *(items.used, t.rows, experts.start, experts.stop, *stages),
        ),
        [t.out],
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
    written = (packed_offsets, packed_items, item_rows, is_over)
    return Launch.of(
        "pack_routes",
        (-(-max(num_items, experts + 1) // BLOCK),),
        BLOCK,
        (offsets, items, *written, experts, capacity),
        written,
    )
