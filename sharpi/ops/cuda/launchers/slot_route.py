"""Launches the kernel that chooses a token's experts and decides which of them get slots."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import (
    Argument,
    Kernel,
    Launch,
    argument_indices,
    flat,
    is_same_address,
    named,
)
from sharpi.ops.cuda.launchers.experts.route import RouteChoice, RouterArguments
from sharpi.ops.cuda.launchers.experts.slot_arguments import (
    DECISION_WRITES,
    DecisionArguments,
    SlotPolicyArguments,
)
from sharpi.ops.cuda.launchers.matvec import MatvecArguments, PartArguments
from sharpi.ops.cuda.matvec_layout import BLOCK


class SlotRouteArguments(NamedTuple):
    """The arguments of slot_route.cu."""

    x: Argument
    matrix: PartArguments
    residual: Argument
    scale: Argument
    columns: Argument
    lane_bits: Argument
    done: Argument
    ids: Argument
    weights: Argument
    router: RouterArguments
    decision: DecisionArguments


_WRITES = argument_indices(
    SlotRouteArguments,
    *("matrix.out", "done", "ids", "weights"),
    *(f"decision.{name}" for name in DECISION_WRITES),
)


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
    return Launch(
        Kernel("slot_route", f"slot_route_{quant_type}", quant_type),
        grid=(-(-product.grid[0] * product.block // block), 1, 1),
        block=block,
        arguments=flat(
            SlotRouteArguments(
                *(given.x, given.a, given.residual, given.scale, given.columns, given.lane_bits),
                *(given.route.done, choice.ids, choice.weights, choice.router, decision),
            )
        ),
        writes=_WRITES,
    )


def _belong_together(choice: RouteChoice, policy: SlotPolicyArguments) -> bool:
    is_of_token = policy.num_before == 0 and policy.num_tokens == 1
    sizes = choice.router.experts, choice.router.used
    is_same = is_same_address(choice.ids, policy.ids) and sizes == (policy.experts, policy.used)
    return is_of_token and is_same and choice.route_time is None


def _threads(product: Launch, policy: SlotPolicyArguments) -> int:
    """Returns the threads of a block, which compute a fixed number of rows each.

    There are more than in `product` if a map of learned-keep has more experts, because a thread
    scores one expert after the other.
    """
    block, experts = product.block, policy.experts
    assert isinstance(experts, np.int32)
    while policy.decision.learned is not None and block < min(BLOCK, experts):
        block *= 2
    return block
