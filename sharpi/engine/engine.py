"""Engine, a loaded model; Session, a conversation with it; Generation, an answer as an iterator."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.constraints.constraint import Constraint
from sharpi.engine.features import Features, arithmetic
from sharpi.engine.load_decisions import LoadDecisions
from sharpi.engine.mapped_file import MappedFile
from sharpi.engine.placement.measured import (
    LEAST_TOKENS,
    against_plan,
    decode_hit_rate,
    keep_hits,
)
from sharpi.engine.runner import Runner
from sharpi.engine.sampling.generation_state import (
    FinishInfo,
    FinishReason,
    GenerationState,
    TextDelta,
    Timings,
    refuse_unknown,
)
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.scheduling.steps import Model, TokenProposer
from sharpi.errors import UsageError
from sharpi.settings import GenerationRequest
from sharpi.system.process import Closing
from sharpi.tokenizer.chat_template import chat_format
from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.stats_collect import ExpertView
    from sharpi.speculation.speculator import Speculator


class Generation:
    """Iterates over pieces of text, never half a character; may be stopped at any time."""

    def __init__(
        self, scheduler: Scheduler, runner: Runner, generation_state: GenerationState
    ) -> None:
        self._scheduler, self._runner, self._state = scheduler, runner, generation_state
        self._num_before = scheduler.num_prefill_tokens
        self._deltas: deque[TextDelta] = deque()
        self._finish_info: FinishInfo | None = None
        self._has_ended = False
        self._pieces = self._run()
        self.text = ""
        self.choices: list[SampledToken] = []

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def ids(self) -> list[int]:
        return self._state.ids

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._state.finish_reason

    @property
    def timings(self) -> Timings:
        return self._state.timings

    @property
    def num_prefilled(self) -> int:
        """Prompt tokens computed so far, of `timings.num_prompt_tokens`; any thread may read it."""
        done = self._scheduler.num_prefill_tokens - self._num_before
        if done < self.timings.num_prompt_tokens and not self._has_ended:
            done += int(self._runner.progress)
        return min(done, self.timings.num_prompt_tokens)

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes steps raise KeyboardInterrupt between two layers while `wanted`; for any thread."""
        self._runner.interrupt(wanted=wanted)

    def close(self) -> None:
        """Stops the generation; no more text follows."""
        self._pieces.close()

    def _run(self) -> Generator[str, None, None]:
        request_id = self._scheduler.enqueue(self._state, self._deltas.append, self._on_end)
        try:
            while self._finish_info is None:
                self._scheduler.step()
                while self._deltas:
                    delta = self._deltas.popleft()
                    self.choices.extend(delta.tokens)
                    if delta.text:
                        self.text += delta.text
                        yield delta.text
        finally:
            self._has_ended = True
            self._scheduler.end(request_id)
        if self._finish_info.error is not None:
            raise self._finish_info.error

    def _on_end(self, finish_info: FinishInfo) -> None:
        self._finish_info = finish_info


class Session:
    """A conversation: a scheduler of one request at a time, which reuses cached prefixes."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._cache = PrefixCache(model.runner, has_branches=False, disk=model.page_store)
        self._scheduler = Scheduler(model, 1, self._cache)

    @property
    def tokens(self) -> list[int]:
        return [token for page in self._cache.pages() for token in page.tokens]

    def generate(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
    ) -> Generation:
        """Begins an answer to the whole conversation; raises UsageError for unknown ids."""
        generation_state = GenerationState(
            self._model.tokenizer, self._model.runner.vocab_size, prompt_ids, request, constraint
        )
        return Generation(self._scheduler, self._model.runner, generation_state)

    def reset(self) -> None:
        """Forgets all tokens and gives the KV pages back."""
        self._cache.clear()


class Engine(Closing):
    """A loaded model, built by `load_engine`; a context manager that frees threads and memory."""

    def __init__(
        self,
        decided: LoadDecisions,
        tokenizer: Tokenizer,
        runner: Runner,
        notes: tuple[str, ...],
        tier: "ExpertTier | None",
        features: Features,
        mapped_file: MappedFile,
    ) -> None:
        self.config, self.model_config = decided.config, decided.model
        self.file, self.plan, self._decided = decided.file, decided.plan, decided
        self.tokenizer, self.chat_format = tokenizer, chat_format(tokenizer)
        self.runner, self.notes = runner, notes
        self._tier, self.features, self.mapped_file = tier, features, mapped_file
        self._tier_notes: tuple[str, ...] = ()

    @property
    def exit_notes(self) -> tuple[str, ...]:
        """Lines for the user, once the engine is closed."""
        return (*self._tier_notes, *self.features.exit_notes)

    @property
    def speculator(self) -> "Speculator":
        return self.features.speculator

    @property
    def page_store(self) -> "PromptCache | None":
        return self.features.page_store

    def proposer(self) -> TokenProposer:
        return self.features.proposer(self.runner)

    @property
    def context_size(self) -> int:
        return self.runner.context_size

    @property
    def arithmetic(self) -> str:
        """A name for the arithmetic of keys and values; equal names mean equal bits."""
        return arithmetic(self._decided)

    def session(self) -> Session:
        """Returns a new, empty conversation; sessions share the KV pages, not their text."""
        return Session(self)

    def logits(
        self, ids: npt.NDArray[np.int32], num_prompt_tokens: int = 0
    ) -> npt.NDArray[np.float32]:
        """Computes logits (tokens, vocabulary) after each of ids (tokens,); raises UsageError."""
        if ids.size == 0:
            raise UsageError("there are no token ids; at least one is needed")
        refuse_unknown(ids.tolist(), self.runner.vocab_size)
        from sharpi.engine.sequence import Sequence as TokenSequence

        sequence = TokenSequence(self.runner, num_prompt_tokens)
        try:
            return sequence.extend_scored(ids.tolist())
        finally:
            sequence.truncate(0)

    @property
    def streams_experts(self) -> bool:
        """True if experts are read from the file into slots in RAM; False if the file is mapped."""
        return self._tier is not None

    def expert_stats(self) -> "ExpertStats | None":
        """Returns the expert statistics so far; None without experts or before any was counted."""
        records = self.features.records
        return None if records is None else records.stats()

    def against_plan(self, timings: Timings) -> str | None:
        """Returns a line that compares an answer's speed and the hits so far with the plan.

        None if the plan does not know this machine's rates yet. Drafts, which no plan expects, do
        not count.
        """
        if self.plan is None or timings.num_generated_tokens < LEAST_TOKENS:
            return None
        drafts = 1.0 if timings.drafts is None else timings.drafts.tokens_per_step
        hits = None if self._tier is None else decode_hit_rate(self.expert_stats())
        return against_plan(self.plan, timings.decode_tokens_per_second / drafts, hits)

    def expert_view(self) -> "ExpertView | None":
        """Returns which experts are resident and used, between two steps; None without experts."""
        records = self.features.records
        return None if records is None else records.view()

    def close(self) -> None:
        """Writes records, ends threads and closes the file, once; `exit_notes` then has lines."""
        self.runner.leave_ranks()
        if self._tier is not None and self.plan is not None and (stats := self.expert_stats()):
            keep_hits(self.file, self.plan, stats)
        self.features.close()
        self.runner.close()
        if self._tier is not None:
            self._tier_notes = tuple(self._tier.notes)
            self._tier.close()
            self._tier = None
        self.mapped_file.close()
        self.file.close()
