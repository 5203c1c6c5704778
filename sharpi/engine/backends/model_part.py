"""Some of a model's layers on one processor; a step goes through the parts in turn."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.view import ExpertView

Values = npt.NDArray[np.float32]


class Segment(NamedTuple):
    """The next tokens of one sequence: `ids` (tokens,) at positions from `position` on.

    `pages` (pages,) of the KV cache cover them. `outputs`: rows of these whose logits are wanted.
    `state`: which of its states a part is to go on with and change, None without recurrent
    layers. `sequence` tells the segments of a step apart, and is the same from step to step.
    """

    ids: IntArray
    position: int
    outputs: IntArray
    pages: IntArray
    state: int | None = None
    sequence: int = 0


class StepOfPart(NamedTuple):
    """The tokens of all segments, one after the other; so are the logits that are wanted.

    `incoming` (tokens, hidden) are the hidden states that the part before left. `wants_largest`, of
    one output alone: the part keeps the logits, and only `ModelPart.largest` is asked.
    """

    segments: tuple[Segment, ...]
    num_tokens: int
    incoming: Values | None = None
    wants_largest: bool = False


def batches(segment: Segment, size: int) -> Iterator[tuple[slice, Segment]]:
    """A segment as several of so many tokens at most, and which of its tokens each has."""
    for first in range(0, len(segment.ids), size):
        rows = segment.outputs
        own = slice(first, first + size)
        yield (
            own,
            segment._replace(
                ids=segment.ids[own],
                position=segment.position + first,
                outputs=rows[(rows >= own.start) & (rows < own.stop)] - np.int32(first),
            ),
        )


class StepRoutes(Protocol):
    """What a step leaves behind for statistics and traces, until the next."""

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids, (rows, used) for each MoE layer."""

    @property
    def router_logits(self) -> list[Values]:
        """Logits of each router, (rows, experts); empty unless they were to be kept."""


class SlotTier(Protocol):
    """Who decides about the slots for experts of a GPU, as records see it."""

    def stats(self, model: str, num_tokens: int) -> "ExpertStats | None":
        """What happened so far; `num_tokens` counts decoded ones. None before there are slots."""

    def view(self, num_tokens: int) -> "ExpertView | None":
        """Who has a slot and was used; None before there are slots."""


class ModelPart(StepRoutes, Protocol):
    """The first part embeds; the last gives logits (outputs, vocabulary), another (tokens, hidden).

    What `run` returns may be a view that the next call overwrites.
    """

    @property
    def max_tokens(self) -> int:
        """Of one pass; a part that takes more of them takes one segment of wanted last outputs."""

    @property
    def gpu_tier(self) -> SlotTier | None:
        """Who decides about slots for experts, where this is a GPU that has some."""

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        """One pass; `max_outputs` of them are wanted at most in passes of this kind."""

    def largest(self) -> int:
        """After a step that wanted it: the id, the lowest among equals; -1 if not finite."""

    def copy_page(self, source: int, target: int) -> None:
        """Makes what its layers keep in one page of the KV cache what they do in another."""

    def copy_state(self, source: int, target: int) -> None:
        """Makes what its recurrent layers carry in one state what they do in another."""

    def prepare(self) -> None:
        """Does now what the first step would have to do first."""

    def close(self) -> None:
        """Frees memory and threads."""
