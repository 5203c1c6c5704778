"""What a step adds to an answer (TextDelta), the end of the answer, and its timings."""

from typing import Literal

from msgspec import Struct, field

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
    drafts: DraftStatistics | None = None  # of the steps that might have drafts

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


class SampledToken(Struct, frozen=True):
    """A chosen token; if asked for, its log probability and those of the best tokens, sorted.

    Logarithms are natural, of the model's softmax before any filter, penalty or temperature.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class TextDelta(Struct, frozen=True):
    """New `text`, never half a character, and the `tokens` that were chosen in the step.

    Either may be empty: text is held back while it may still become a stop string.
    """

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
