"""The request for an answer, the parts of an answer and its end, independent of the API."""

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

    num_prompt: int = 0  # includes tokens found in the KV cache
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
    stop: str | None = None  # the stop string that ended it


AnswerDeltaOrEnd: TypeAlias = AnswerDelta | AnswerEnd


class PromptRequest(AnswerRequest, frozen=True, eq=False):
    """The request for one answer, with the parser of its text."""

    parser: "AnswerParser | None" = None  # None makes everything text
    parallel_calls: bool = True
    # Gets the text, the tokens and the end token of an answer that ended by one.
    remember: Callable[[str, list[int], int], None] | None = None
