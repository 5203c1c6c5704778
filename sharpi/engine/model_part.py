"""Some of a model's layers on one processor; a step goes through the parts in turn."""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpi.ops.program import IntArray

Values = npt.NDArray[np.float32]


class StepOfPart(NamedTuple):
    """`ids` (tokens,) at positions from `position` on; `pages` (pages,) of the KV cache cover them.

    `outputs`: rows whose logits are wanted. `state`: which of its states a part is to go on
    with and change, None without recurrent layers. `incoming` (tokens, hidden): what the
    part before left. `wants_largest`: not the logits, but which of the first output's is largest.
    """

    ids: IntArray
    position: int
    outputs: IntArray
    pages: IntArray
    state: int | None = None
    incoming: Values | None = None
    wants_largest: bool = False


class StepRoutes(Protocol):
    """What a step leaves behind for statistics and traces, until the next."""

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids, (rows, used) for each MoE layer."""

    @property
    def router_logits(self) -> list[Values]:
        """Logits of each router, (rows, experts); empty unless they were to be kept."""


class ModelPart(StepRoutes, Protocol):
    """The first part embeds; the last gives logits (outputs, vocabulary), another (tokens, hidden).

    What `run` returns may be a view that the next call overwrites.
    """

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        """One pass; `max_outputs` of them are wanted at most in passes of this kind."""

    def largest(self) -> int:
        """After a step that wanted it: the id, the lowest among equals; -1 if not finite."""

    def copy_state(self, source: int, target: int) -> None:
        """Makes what its recurrent layers carry in one state what they do in another."""

    def prepare(self) -> None:
        """Does now what the first step would have to do first."""

    def close(self) -> None:
        """Frees memory and threads."""
