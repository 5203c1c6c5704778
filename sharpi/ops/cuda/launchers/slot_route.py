"""Launches the kernel that chooses a token's experts and decides which of them get slots."""

from typing import NamedTuple

from sharpi.device.launch import Kernel, Launch, Span, is_same_address, named
from sharpi.ops.cuda.launchers.experts.route import RouteChoice, RouterArguments
from sharpi.ops.cuda.launchers.experts.slot_policy import DecisionArguments, SlotPolicyArguments
from sharpi.ops.cuda.launchers.matvec import MatvecArguments, PartArguments
from sharpi.ops.cuda.matvec_layout import BLOCK


class SlotRouteArguments(NamedTuple):
    """The arguments of slot_route.cu."""

    x: Span
    matrix: PartArguments
    residual: Span | None
    scale: float
    columns: int
    lane_bits: int
    done: Span | None
    ids: Span | None
    weights: Span | None
    router: RouterArguments
    decision: DecisionArguments


def with_slots(product: Launch, policy: Launch) -> Launch | None:
    """Returns one launch for a router's product, its choice of experts and their `slot_policy`.

    Returns None if `product` does not choose the experts of `policy`, and if the step has several
    tokens. It also returns None if the time of the choice is measured, because the decision then
    has to wait for a prefetch.
    """
    given = named(MatvecArguments, product.arguments)
    following = named(SlotPolicyArguments, policy.arguments)
    choice, decision = given.route.choice, following.decision
    if not _belong_together(choice, following):
        return None
    quant_type, block = product.kernel.quant_type, _threads(product, following)
    done = given.route.done
    return Launch.of(
        Kernel("slot_route", f"slot_route_{quant_type}", quant_type),
        (-(-product.grid[0] * product.block // block),),
        block,
        SlotRouteArguments(
            *(given.x, given.a, given.residual, given.scale, given.columns, given.lane_bits),
            *(done, choice.ids, choice.weights, choice.router, decision),
        ),
        [given.a.out, done, choice.ids, choice.weights, *decision.written],
    )


def _belong_together(choice: RouteChoice, policy: SlotPolicyArguments) -> bool:
    is_of_token = policy.num_before == 0 and policy.num_tokens == 1
    sizes = choice.router.experts, choice.router.used
    is_same = is_same_address(choice.ids, policy.ids) and sizes == (policy.experts, policy.used)
    return is_of_token and is_same and choice.route_time is None


def _threads(product: Launch, policy: SlotPolicyArguments) -> int:
    """Returns the threads of a block: more than in `product` if each has to score many experts."""
    block = product.block
    while policy.decision.learned is not None and block < min(BLOCK, policy.experts):
        block *= 2
    return block
