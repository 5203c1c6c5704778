"""ModelPart: some of a model's layers on one processor; a step goes through the parts in turn."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.device.device import Device
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.stats_collect import ExpertView, RunFacts
    from sharpi.ops.cuda.replay.step_outputs import StepValues


Values = npt.NDArray[np.float32]
HostBytes = npt.NDArray[np.uint8]


class Segment(NamedTuple):
    """The next tokens of one sequence in a step."""

    ids: IntArray  # (tokens,)
    position: int  # position of the first token
    outputs: IntArray  # rows of `ids` whose logits are requested
    pages: IntArray  # pages of the KV cache that cover the tokens, (pages,)
    state: int | None = None  # the state that recurrent layers read and update
    sequence: int = 0  # identifies the sequence from step to step
    num_drafts: int = 0  # how many of the last `ids` are drafts
    # The states to which recurrent layers write the state after each token; `state` then stays
    # unchanged. Empty if only the state after the last token is wanted, in `state` itself.
    states_after: tuple[int, ...] = ()
    # Positions that each head of the sequence has dropped; a slot is a position less this number.
    num_dropped: int = 0
    # The number of slots that each head keeps after this step, copied to `kept_pages`; 0 keeps all.
    num_kept: int = 0
    kept_pages: IntArray | None = None


class StepOfPart(NamedTuple):
    """One step: the tokens of all segments, concatenated; their logits have the same order."""

    segments: tuple[Segment, ...]
    num_tokens: int  # of all segments
    incoming: "StepValues | None" = None  # (tokens, hidden) from the previous part
    # For a single output: the part keeps the logits, and the caller only calls `ModelPart.largest`.
    wants_largest: bool = False
    # With `wants_largest`: the next step probably continues with that token, and nobody reads the
    # routes of this one. A GPU may then begin the next step at once.
    continues_greedily: bool = False


def batches(segment: Segment, size: int) -> Iterator[tuple[slice, Segment]]:
    """Splits a segment into parts of at most `size` tokens; yields each with its slice of `ids`."""
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


def of_outputs(step: StepOfPart) -> StepOfPart:
    """Returns a step of only those tokens whose logits are requested."""
    segments = tuple(
        segment._replace(
            ids=segment.ids[segment.outputs],
            outputs=np.arange(len(segment.outputs), dtype=np.int32),
            num_drafts=0,
            states_after=(),
        )
        for segment in step.segments
        if len(segment.outputs)
    )
    return step._replace(segments=segments, num_tokens=sum(len(each.ids) for each in segments))


class StepRoutes(Protocol):
    """The routes of the last step, for statistics and traces."""

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids (rows, used) of each MoE layer."""

    @property
    def router_logits(self) -> list[Values]:
        """Router logits (rows, experts) of each MoE layer; empty unless they are kept."""


class SlotTier(Protocol):
    """The interface through which records read the state of a GPU's expert slots."""

    def stats(self, run: "RunFacts") -> "ExpertStats | None":
        """Returns the expert statistics so far; None before slots exist."""

    def loads_and_pins(self) -> dict[int, tuple[int, list[int]]]:
        """Returns each layer's number of loads and its pinned experts; empty before slots exist."""

    def pin_note(self) -> str | None:
        """Returns a note if the most used experts were to be pinned and were not, else None."""

    def view(self) -> "ExpertView | None":
        """Returns which experts have slots, and their numbers of uses; None before slots exist."""


class StepObserver(Protocol):
    """Sees every step after it was computed."""

    @property
    def reads_routes(self) -> bool:
        """True if `step` reads the routes of decoded tokens."""

    def step(self, segments: Sequence[Segment], program: StepRoutes) -> None: ...


class ModelPart:
    """Some layers of a model; `run` may return a view that the next call overwrites."""

    device: "Device | None" = None  # this machine's GPU; None for the CPU and for other machines
    gpu_tier: SlotTier | None = None  # the expert slots on a GPU; None if all experts fit
    splits_steps = False  # `run` splits steps of more than `max_tokens` into several passes itself

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The maximum number of tokens of one pass.

        It may exceed the batch size. A pass of more tokens than a batch must be a single segment,
        and the part returns only that segment's last outputs.
        """

    @abstractmethod
    def run(self, step: StepOfPart, max_outputs: int) -> "StepValues":
        """Runs a step with the program recorded for at most `max_outputs` outputs.

        The last part returns its values on the host. A GPU before another one may return values in
        its own memory, which are valid until its next pass.
        """

    def largest(self) -> int:
        """Returns the last step's most likely token id, the lowest of several; -1 if not finite."""
        raise NotImplementedError

    @property
    def is_ahead(self) -> bool:
        """True if a GPU has begun the next step before the host knows that step's token."""
        return False

    @property
    def hidden(self) -> Values:
        """The hidden states (tokens, hidden) of the last step, from which an MTP head drafts."""
        raise NotImplementedError

    @property
    def routes(self) -> list[IntArray]:
        return []

    @property
    def router_logits(self) -> list[Values]:
        return []

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes CPU passes raise KeyboardInterrupt between two layers while `wanted`."""

    @property
    def progress(self) -> float:
        """The fraction of the current pass that is done, 0 to 1; any thread may read it."""
        return 0.0

    def prepare(self) -> None:
        """Prepares the first step: records its program and, on a GPU, compiles its kernels."""

    @abstractmethod
    def close(self) -> None: ...


class RemoteLayers(ModelPart):
    """A part whose layers `num_ranks` machines run, with as many steps in flight."""

    num_ranks: int

    @abstractmethod
    def send(self, step: StepOfPart, max_outputs: int) -> int | None:
        """Sends a step to the next machine; returns its number, None if it has no outputs."""

    @abstractmethod
    def receive(self, number: int) -> Values:
        """Waits for the values of a step's outputs, (outputs, hidden)."""

    @abstractmethod
    def discard(self, number: int) -> None:
        """Drops a step's outputs, those received and those to come."""

    @abstractmethod
    def copy_page(self, source: int, target: int) -> None:
        """Makes other machines copy a page of the KV cache to another page."""

    @abstractmethod
    def copy_state(self, source: int, target: int) -> None:
        """Makes other machines copy a state of recurrent layers to another state."""

    @abstractmethod
    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        """Makes sliding-window layers on other machines drop a page; see `KvCache.drop_windows`."""


class SegmentRoutes(NamedTuple):
    """A segment's routes (rows, used) by MoE layer; a trimmed last one has rows of outputs only."""

    segment: Segment
    routes: list[IntArray]
    router_logits: list[Values]


def segment_routes(
    segments: Sequence[Segment], program: StepRoutes, *, trims: bool
) -> Iterator[SegmentRoutes]:
    """Yields each segment's routes; `trims`: the last MoE layer has rows for outputs only."""
    routes, router_logits = program.routes, program.router_logits
    token = output = 0
    for segment in segments:
        tokens = slice(token, token := token + len(segment.ids))
        outputs = slice(output, output := output + len(segment.outputs))
        of_layer = [tokens] * len(routes)
        if trims and of_layer:
            of_layer[-1] = outputs
        own = [ids[rows] for ids, rows in zip(routes, of_layer, strict=True)]
        yield SegmentRoutes(segment, own, [values[tokens] for values in router_logits])


def step_rows(
    segments: Sequence[Segment], routes: list[IntArray], *, trims: bool
) -> list[IntArray]:
    """Returns each layer's routes (rows, used) without rows left from an earlier, longer step."""
    num_tokens = sum(len(segment.ids) for segment in segments)
    rows = [ids[:num_tokens] for ids in routes]
    if trims and rows:
        rows[-1] = routes[-1][: sum(len(segment.outputs) for segment in segments)]
    return rows


class KeptRoutes:
    """Collects the routes of all segments of a step that runs in several passes.

    `trims`: the last MoE layer has rows for outputs only.
    """

    def __init__(self, *, trims: bool) -> None:
        self._trims = trims
        self._kept: dict[int, SegmentRoutes] = {}

    def add(self, segments: Mapping[int, Segment], program: StepRoutes) -> None:
        """Copies the routes of segments, keyed by their first rows, from the program's last run."""
        dealt = segment_routes(list(segments.values()), program, trims=self._trims)
        for row, own in zip(segments, dealt, strict=True):
            logits = [values.copy() for values in own.router_logits]
            self._kept[row] = SegmentRoutes(own.segment, [ids.copy() for ids in own.routes], logits)

    @property
    def routes(self) -> list[IntArray]:
        """Expert ids (rows, used) of each MoE layer, in the order of the step's tokens."""
        layers = zip(*(self._kept[row].routes for row in sorted(self._kept)), strict=True)
        return [np.concatenate(layer) for layer in layers]

    @property
    def router_logits(self) -> list[Values]:
        """Router logits (rows, experts) of each MoE layer by tokens; empty unless kept."""
        layers = zip(*(self._kept[row].router_logits for row in sorted(self._kept)), strict=True)
        return [np.concatenate(layer) for layer in layers]
