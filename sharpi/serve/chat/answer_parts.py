"""The request for an answer, the parts of the answer, and its end, for all APIs."""

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
    """One part of an answer: a piece of text, of reasoning or of a tool call."""

    event: AnswerEvent
    tokens: tuple[SampledToken, ...] = ()  # of a piece of text; empty for reasoning and calls


class AnswerEnd(Struct, frozen=True):
    """The end of an answer: its reason and its token counts."""

    reason: EndReason
    usage: Usage
    stop: str | None = None  # the stop string that ended the answer


AnswerDeltaOrEnd: TypeAlias = AnswerDelta | AnswerEnd


class PromptRequest(AnswerRequest, frozen=True, eq=False):
    """The request for one answer, with the parser for reasoning and tool calls in its text."""

    parser: "AnswerParser | None" = None  # None treats the complete answer as text
    parallel_calls: bool = True
    # Called with text, token ids and end token when the answer ends by an end token.
    remember: Callable[[str, list[int], int], None] | None = None
