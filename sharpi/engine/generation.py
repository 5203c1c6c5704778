"""Session, a conversation with a model, and Generation, an answer in it as an iterator of text."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence

from sharpi.constraints.constraint import Constraint
from sharpi.engine.runner import Runner
from sharpi.engine.sampling.generation_state import GenerationState
from sharpi.engine.sampling.text_delta import (
    FinishInfo,
    FinishReason,
    SampledToken,
    TextDelta,
    Timings,
)
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.scheduling.steps import Model
from sharpi.settings import GenerationRequest


class Generation:
    """Iterates over pieces of text, never half a character; may be stopped at any time.

    `choices` are the tokens chosen so far, `text` is the part of their text that was yielded. The
    KV cache stays valid when a caller stops early.
    """

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
        """Tokens chosen so far, without the end token."""
        return self._state.ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """The reason that the answer ended; None while it has not."""
        return self._state.finish_reason

    @property
    def timings(self) -> Timings:
        """Seconds and tokens counted so far."""
        return self._state.timings

    @property
    def num_prefilled(self) -> int:
        """Prompt tokens computed so far, of `timings.num_prompt_tokens`; any thread may read it."""
        done = self._scheduler.num_prefill_tokens - self._num_before
        if done < self.timings.num_prompt_tokens and not self._has_ended:
            done += int(self._runner.progress)
        return min(done, self.timings.num_prompt_tokens)

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes the current step raise KeyboardInterrupt between two layers.

        The tokens of earlier steps stay in the KV cache. The interruption stays in force until a
        call with `wanted=False`. Any thread may call it.
        """
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
        """Tokens in the KV cache."""
        return [token for page in self._cache.pages() for token in page.tokens]

    def generate(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
    ) -> Generation:
        """Begins an answer to `prompt_ids`, the tokens of the whole conversation.

        Tokens in the KV cache are not computed again. `constraint` is used for this answer alone.
        Raises UsageError for ids that the model does not have.
        """
        generation_state = GenerationState(
            self._model.tokenizer, self._model.runner.vocab_size, prompt_ids, request, constraint
        )
        return Generation(self._scheduler, self._model.runner, generation_state)

    def reset(self) -> None:
        """Forgets all tokens and gives the KV pages back."""
        self._cache.clear()
