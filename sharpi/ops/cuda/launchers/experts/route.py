"""Launches the kernel that chooses experts from router logits."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.ops.cuda.launchers.named_arguments import argument_indices, flat
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
