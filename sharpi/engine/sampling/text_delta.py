"""TextDelta and FinishInfo: the text that a step adds to an answer, and the answer's end."""

from typing import Literal

from msgspec import Struct, field

from sharpi.engine.sampling.timings import Timings

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
