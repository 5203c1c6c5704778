"""GpuPrompts: decides which prompts pass through a GPU layer by layer, and which in batches."""

from sharpi.ops.cuda.recorded import PassCounts
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.prompt_program import PromptProgram, StashSizes, token_bytes
from sharpi.tiers.expert_memory import StashPlan


class GpuPrompts:
    """The prompts of one GPU; `program` runs them layer by layer, or is None if that is slower."""

    def __init__(self, plan: StashPlan, batch_size: int) -> None:
        self._plan, self._batch_size = plan, batch_size
        self.counts = PassCounts()
        self.program: PromptProgram | None = None

    def prepare(self, program: GpuProgram) -> None:
        """Allocates the stash for prompts as planned, if the program streams experts."""
        if self._plan.max_tokens and program.expert_weights.streams and self.program is None:
            sizes = _stash_sizes(
                self._plan, token_bytes(program.recording.stages), self._batch_size
            )
            if sizes.max_tokens > self._batch_size:
                self.program = PromptProgram(program, sizes)

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
