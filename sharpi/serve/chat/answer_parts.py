"""The request for an answer, the answer's parts and its end, independent of the API."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from sharpi.dialogue.events import AnswerEvent
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.serve.host.answer_group import AnswerRequest

if TYPE_CHECKING:
    from sharpi.dialogue.answer_parser import AnswerParser

EndReason = Literal["stop", "stop_string", "length", "context", "calls"]


class Usage(Struct, frozen=True):
    """The token counts of one answer."""

    num_prompt: int = 0  # including tokens found in the KV cache
    num_cached: int = 0  # prompt tokens found in the KV cache
    num_generated: int = 0
    num_reasoning: int = 0


class AnswerDelta(Struct, frozen=True):
    """A part of an answer."""

    event: AnswerEvent
    tokens: tuple[SampledToken, ...] = ()  # the sampled tokens of a text


class AnswerEnd(Struct, frozen=True):
    """The end of an answer."""

    reason: EndReason
    usage: Usage
    stop: str | None = None  # the stop string that ended the answer


AnswerDeltaOrEnd: TypeAlias = AnswerDelta | AnswerEnd


class PromptRequest(AnswerRequest, frozen=True, eq=False):
    """The request for one answer, with the parser of its text."""

    parser: "AnswerParser | None" = None  # None takes everything as text
    parallel_calls: bool = True
    # Receives the text, the tokens and the end token of an answer that an end token ended.
    remember: Callable[[str, list[int], int], None] | None = None
