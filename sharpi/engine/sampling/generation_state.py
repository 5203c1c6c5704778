"""GenerationState: the text of one answer so far, from logits or chosen tokens to its end."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from sharpi.constraints.constraint import Constraint
from sharpi.engine.sampling.sampler import SampledToken, Sampler
from sharpi.errors import UsageError
from sharpi.settings import GenerationRequest
from sharpi.tokenizer.stream import StopFilter, StreamDecoder
from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.speculation.statistics import DraftStatistics


class Timings(Struct):
    """Seconds and tokens of one answer; rates are 0 where nothing was measured.

    `num_prompt_tokens` were computed, `num_cached_tokens` were found in the KV cache. The decode
    rate leaves out the first token, which comes out of the prefill. `first_token_seconds` count
    from the arrival of the request, `prefill_seconds` from when it leaves the queue.
    """

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.0
    num_generated_tokens: int = 0
    decode_seconds: float = 0.0
    first_token_seconds: float = 0.0
    drafts: "DraftStatistics | None" = None  # of the steps that might have drafts

    @property
    def prompt_tokens_per_second(self) -> float:
        """The tokens per second of the prefill, without cached tokens."""
        return self.num_prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """The tokens per second of decoding, sampling and conversion to text included."""
        steps = self.num_generated_tokens - 1
        return steps / self.decode_seconds if self.decode_seconds and steps > 0 else 0.0


FinishReason = Literal["stop", "length", "context", "cancelled", "error"]


class TextDelta(Struct, frozen=True):
    """New text, never half a character nor of a possible stop string, and a step's tokens."""

    text: str
    tokens: tuple[SampledToken, ...] = ()


class PrefillProgress(Struct, frozen=True):
    """How far a prompt is computed, in tokens; cached tokens count as computed."""

    num_prompt: int
    num_cached: int
    num_done: int
    seconds: float  # since the request left the queue


class FinishInfo(Struct, frozen=True):
    """The reason that an answer ended, with its `end_token`, `stop` string or `error` if any."""

    reason: FinishReason
    timings: Timings = field(default_factory=Timings)
    end_token: int | None = None
    stop: str | None = None
    error: Exception | None = None


class GenerationState:
    """Turns logits into pieces of text until `finish_reason` is set.

    `ids` are the tokens chosen so far without the end token, `text` is the text shown so far. With
    `takes_largest` every choice is the largest logit, and `add_largest` may be called instead of
    `add`. Raises UsageError for an empty prompt and for ids that the model has no logits for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        constraint: Constraint | None = None,
    ) -> None:
        if not prompt_ids:
            raise UsageError("the prompt is empty and the model has no BOS token to start from")
        refuse_unknown(prompt_ids, vocab_size)
        refuse_unknown([token for token, _ in request.logit_bias], vocab_size)
        self.prompt, self.request = list(prompt_ids), request
        self._tokenizer, self._constraint = tokenizer, constraint
        # After a control token, as after a chat template, a SentencePiece text starts anew.
        starts_text = tokenizer.is_hidden(prompt_ids[-1])
        shown = tokenizer.hidden_ids - tokenizer.end_ids if request.shows_special else ()
        self._decoder = StreamDecoder(tokenizer, starts_text=starts_text, shown_ids=shown)
        self._stops = StopFilter(request.stop, request.reasoning)
        self._sampler = Sampler(request, prompt_ids, constraint)
        self.takes_largest = self._sampler.takes_largest
        self._start = self._prefill_start = self._decode_start = 0.0
        self.finish_reason: FinishReason | None = None
        self.end_token: int | None = None
        self.text = ""
        self.ids: list[int] = []
        self.timings = Timings()

    def start(self) -> None:
        """Starts the clocks for the time to the first token and for the prefill."""
        self._start = self._prefill_start = time.perf_counter()

    def begin(self) -> None:
        """Restarts the clock of the prefill, after a wait in the queue."""
        self._prefill_start = time.perf_counter()

    def prefill_progress(self, num_done: int) -> PrefillProgress:
        """Returns the progress of a prompt of which `num_done` tokens are computed or cached."""
        cached = self.timings.num_cached_tokens
        total = cached + self.timings.num_prompt_tokens
        seconds = time.perf_counter() - self._prefill_start
        return PrefillProgress(total, cached, num_done, seconds)

    def prefilled(self) -> None:
        self._decode_start = time.perf_counter()
        self.timings.prefill_seconds = self._decode_start - self._prefill_start
        if self.request.max_tokens == 0:
            self.finish_reason = "length"

    def add(self, logits: npt.NDArray[np.float32]) -> TextDelta:
        """Chooses a token by logits (vocabulary,), and returns its delta; raises as `choose`."""
        return self._add(self._sampler.choose(logits))

    def add_largest(self, token: int) -> TextDelta:
        """Adds the token that the caller found to have the largest logit; returns its delta."""
        return self._add(self._sampler.accept(token))

    def _add(self, choice: SampledToken) -> TextDelta:
        self._count()
        if self._is_end(choice.id):
            self.end_token = choice.id
            return self.end("stop", (choice,))
        self.ids.append(choice.id)
        text = self._stops.feed(self._decoder.feed(choice.id))
        self.text += text
        if self._stops.found is not None:
            self.finish_reason = "stop"
        elif 0 <= self.request.max_tokens <= len(self.ids):
            return TextDelta(text + self.end("length").text, (choice,))
        return TextDelta(text, (choice,))

    def _is_end(self, token: int) -> bool:
        """Returns True if the token ends the answer; a constraint overrides `ignore_end`."""
        ignores_end = self.request.ignore_end and self._constraint is None
        return not ignores_end and token in self._tokenizer.end_ids

    def end(self, reason: FinishReason, tokens: tuple[SampledToken, ...] = ()) -> TextDelta:
        """Ends the answer; the delta has the text that was held back until now."""
        self.finish_reason = reason
        text = self._stops.feed(self._decoder.flush()) + self._stops.flush()
        self.text += text
        return TextDelta(text, tokens)

    def finish_info(self, error: Exception | None = None) -> FinishInfo:
        """Returns how the answer ended; the answer must have ended."""
        assert self.finish_reason is not None
        return FinishInfo(
            self.finish_reason, self.timings, self.end_token, self._stops.found, error
        )

    def _count(self) -> None:
        now = time.perf_counter()
        self.timings.num_generated_tokens += 1
        self.timings.decode_seconds = now - self._decode_start
        if self.timings.num_generated_tokens == 1:
            self.timings.first_token_seconds = now - self._start


def refuse_unknown(ids: Sequence[int], vocab_size: int) -> None:
    """Raises UsageError for ids outside the vocabulary, since kernels do not check ids."""
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        raise UsageError(f"token ids must be 0..{vocab_size - 1}, not {min(ids)}..{max(ids)}")
