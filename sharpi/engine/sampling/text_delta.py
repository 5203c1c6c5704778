"""What one step adds to an answer, and how an answer ends."""

from typing import Literal

from msgspec import Struct, field

from sharpi.engine.sampling.timings import Timings

FinishReason = Literal["stop", "length", "context", "cancelled", "error"]


class SampledToken(Struct, frozen=True):
    """A chosen token; with logprobs asked for, its own and those of the best, best first.

    Logarithms are natural, of the model's softmax before any filter, penalty or temperature.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class TextDelta(Struct, frozen=True):
    """`text` that became certain, never half a character; `tokens` that were chosen for it.

    Either may be empty: text is held back while it may still become a stop string.
    """

    text: str
    tokens: tuple[SampledToken, ...] = ()


class FinishInfo(Struct, frozen=True):
    """Why an answer ended, `end_token` if by one, `stop` string if by one, `error` if by one."""

    reason: FinishReason
    timings: Timings = field(default_factory=Timings)
    end_token: int | None = None
    stop: str | None = None
    error: Exception | None = None
