"""Some of a model's layers on one processor; a step goes through the parts in turn."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.stats_collect import RunFacts
    from sharpi.experts.stats.view import ExpertView
    from sharpi.ops.cuda.replay.gpu_values import Passed

Values = npt.NDArray[np.float32]
HostBytes = npt.NDArray[np.uint8]


class Segment(NamedTuple):
    """The next tokens of one sequence in a step."""

    ids: IntArray  # (tokens,)
    position: int  # of the first token
    outputs: IntArray  # rows of `ids` whose logits are requested
    pages: IntArray  # (pages,) of the KV cache, which cover the tokens
    state: int | None = None  # the state that recurrent layers continue and change
    sequence: int = 0  # names the sequence, the same from step to step
    num_drafts: int = 0  # the last so many of `ids` are drafts, which may prove wrong
    # The states in which recurrent layers leave what they have after each token; `state` then
    # stays as it is. Empty where only the last token's is wanted, in `state` itself.
    states_after: tuple[int, ...] = ()
    # Keys and values that each head of the sequence has dropped: a slot is a position less those.
    num_dropped: int = 0
    # The slots that each head is to keep after this step, copied to these pages; 0 keeps all.
    num_kept: int = 0
    kept_pages: IntArray | None = None


class StepOfPart(NamedTuple):
    """The tokens of all segments, concatenated; the requested logits have the same order."""

    segments: tuple[Segment, ...]
    num_tokens: int  # of all segments
    incoming: "Passed | None" = None  # (tokens, hidden) from the part before
    # For one output alone: the part keeps the logits, and only `ModelPart.largest` is asked.
    wants_largest: bool = False
    # With `wants_largest`: the next step probably goes on with that token, and nobody reads the
    # routes of this one. A GPU may then begin the next step at once.
    goes_on: bool = False


def batches(segment: Segment, size: int) -> Iterator[tuple[slice, Segment]]:
    """Splits a segment into segments of at most `size` tokens, each with its slice of tokens."""
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
    """The routes of the last step, for statistics and traces."""

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids, (rows, used) for each MoE layer."""

    @property
    def router_logits(self) -> list[Values]:
        """Logits of each router, (rows, experts); empty unless they are kept."""


class SlotTier(Protocol):
    """The owner of the slots for experts on a GPU, with the methods that records need."""

    def stats(self, run: "RunFacts") -> "ExpertStats | None":
        """Returns the statistics so far, None before there are slots."""

    def loads_and_pins(self) -> dict[int, tuple[int, list[int]]]:
        """Returns each layer's loads so far and its pinned experts; empty without slots yet."""

    def pin_note(self) -> str | None:
        """Returns a sentence if the warm pin that the user asked for did not happen."""

    def view(self, num_tokens: int) -> "ExpertView | None":
        """Returns which experts have slots and were used; None before there are slots."""


class ModelPart(StepRoutes, Protocol):
    """The first part looks up the embedding; the last returns logits (outputs, vocabulary).

    Every other part returns the hidden states (tokens, hidden) of all tokens. The result of `run`
    may be a view that the next call overwrites.
    """

    @property
    def max_tokens(self) -> int:
        """The most tokens of one pass.

        Where this exceeds the batch size, more tokens than a batch must be a single segment, of
        which the part returns only the last outputs.
        """

    @property
    def splits_steps(self) -> bool:
        """True if `run` also takes steps of more than `max_tokens`, in several passes."""

    @property
    def gpu_tier(self) -> SlotTier | None:
        """The owner of the slots for experts, if this part is a GPU that has some."""

    def run(self, step: StepOfPart, max_outputs: int) -> "Passed":
        """Runs a step, with the program that is recorded for at most `max_outputs` outputs.

        The last part returns its values on the host. A GPU before another one may return values in
        its own memory, which are valid until its next pass.
        """

    def largest(self) -> int:
        """Returns the last step's most likely id, the lowest of equals; -1 if not finite."""

    @property
    def hidden(self) -> Values:
        """The last step's values (tokens, hidden) of all tokens after the output norm.

        Only the model's last part has them, and only if an MTP head drafts.
        """

    def interrupt(self, *, wanted: bool = True) -> None:
        """Ends the pass that runs, or the next one, between two layers, with KeyboardInterrupt.

        This stays in force until a call with `wanted=False`. Any thread may call it.
        """

    @property
    def progress(self) -> float:
        """The part of the current pass that is done, 0 to 1; any thread may ask."""

    def copy_page(self, source: int, target: int) -> None:
        """Copies what its layers keep in one page of the KV cache to another page."""

    def copy_state(self, source: int, target: int) -> None:
        """Copies what its recurrent layers keep in one state to another state."""

    @property
    def page_bytes(self) -> int:
        """Bytes that its layers keep in one page of the KV cache."""

    @property
    def state_bytes(self) -> int:
        """Bytes that its recurrent layers keep in one state."""

    @property
    def is_host_memory(self) -> bool:
        """True if any thread may read pages and states while no step writes to them."""

    def read_page(self, page: int, target: HostBytes) -> None:
        """Copies what its layers keep in a page to `target`, (page_bytes,)."""

    def write_page(self, page: int, source: HostBytes) -> None:
        """Sets a page to what `read_page` read."""

    def read_state(self, state: int, target: HostBytes) -> None:
        """Copies what its recurrent layers keep in a state to `target`, (state_bytes,)."""

    def write_state(self, state: int, source: HostBytes) -> None:
        """Sets a state to what `read_state` read."""

    def prepare(self) -> None:
        """Prepares what the first step would otherwise have to prepare."""

    def close(self) -> None:
        """Frees memory and threads."""


class RemoteLayers(ModelPart, Protocol):
    """A part whose layers other machines run; several steps may be in progress there."""

    @property
    def num_ranks(self) -> int:
        """The number of machines that run the model, with this one; as many steps keep all busy."""

    def send(self, step: StepOfPart, max_outputs: int) -> int | None:
        """Sends a step to the next machine; returns its number, None if it has no outputs."""

    def receive(self, number: int) -> Values:
        """Waits for the values of a step's outputs, (outputs, hidden)."""

    def forget(self, number: int) -> None:
        """Drops a step's outputs: `receive` will not be called for them."""

    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        """Lets layers with windows there drop a page; see `KvCache.drop_windows`."""
