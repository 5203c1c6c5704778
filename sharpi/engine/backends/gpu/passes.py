"""Splits a step for a GPU into passes, and runs prompts layer by layer where that is faster."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharpi.engine.backends.model_part import Segment, batches
from sharpi.ops.cuda.recorded import PassCounts
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.prompt_program import PromptProgram, StashSizes, array_bytes
from sharpi.tiers.expert_memory import StashPlan


class GpuPass(NamedTuple):
    """Segments that one pass computes together, keyed by their first row in the step."""

    segments: dict[int, Segment]

    @property
    def rows(self) -> list[int]:
        """The row in the step of each token of the pass, in the order of the pass."""
        return [
            row
            for first, segment in self.segments.items()
            for row in range(first, first + len(segment.ids))
        ]


def gpu_passes(
    segments: Sequence[Segment], batch_size: int, most_tokens: int = PRODUCT_TOKENS - 1
) -> Iterator[GpuPass]:
    """Yields a pass of all segments of at most `most_tokens`, then batches of longer ones."""
    together: dict[int, Segment] = {}
    alone: dict[int, Segment] = {}
    row = 0
    for segment in segments:
        (together if len(segment.ids) <= most_tokens else alone)[row] = segment
        row += len(segment.ids)
    if together:
        yield GpuPass(together)
    for first, segment in alone.items():
        for own, batch in batches(segment, batch_size):
            yield GpuPass({first + own.start: batch})


class GpuPrompts:
    """The prompts of one GPU; `program` runs them layer by layer, or is None if that is slower."""

    def __init__(self, plan: StashPlan, batch_size: int) -> None:
        self._plan, self._batch_size = plan, batch_size
        self.counts = PassCounts()
        self.program: PromptProgram | None = None

    def prepare(self, program: GpuProgram) -> None:
        """Allocates the stash for prompts as planned, if the program streams experts."""
        slotted = program.expert_weights.slotted
        streams = slotted is not None and slotted.prefill_access.streams
        if slotted is not None and streams and self._plan.max_tokens and self.program is None:
            sizes = _stash_sizes(
                self._plan, sum(array_bytes(program.recording.stages)), self._batch_size
            )
            if sizes.max_tokens > self._batch_size:
                self.program = PromptProgram(program, slotted, sizes)

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of one sequence that a single run of the part computes."""
        return self._batch_size if self.program is None else self.program.sizes.max_tokens

    def takes(self, num_tokens: int) -> PromptProgram | None:
        """Returns the program for a prompt of `num_tokens`; None if the prompt runs in batches."""
        if num_tokens <= self._batch_size or self.program is None:
            return None
        sizes = self.program.sizes
        if not sizes.holds(num_tokens):
            self.counts.stash_overflows += 1
            return None
        self.counts.by_layer += 1
        self.counts.spilled_pages += sizes.spilled_pages(num_tokens)
        return self.program


def _stash_sizes(plan: StashPlan, token_bytes: int, batch_size: int) -> StashSizes:
    """Returns the capacity of the planned stash, in pages; a token takes `token_bytes`."""
    page_bytes = max(1, token_bytes * plan.page_tokens)
    gpu = min(plan.gpu_pages, plan.gpu_bytes // page_bytes)
    host = min(plan.host_pages, plan.host_bytes // page_bytes)
    tokens = plan.max_tokens
    if plan.page_tokens == 1:
        tokens = min(tokens, gpu // batch_size * batch_size)
    return StashSizes(tokens, plan.page_tokens, gpu, host)
