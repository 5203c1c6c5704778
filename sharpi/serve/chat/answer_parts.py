"""The request for an answer, the parts of an answer and its end, independent of the API."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint
from sharpi.dialogue.events import AnswerEvent
from sharpi.engine.sampling.text_delta import SampledToken

if TYPE_CHECKING:
    from sharpi.dialogue.answer_parser import AnswerParser

EndReason = Literal["stop", "stop_string", "length", "context", "calls"]


class Usage(Struct, frozen=True):
    """Tokens of one answer; those of the prompt that were in the KV cache count as prompt, too."""

    num_prompt: int = 0
    num_cached: int = 0
    num_generated: int = 0
    num_reasoning: int = 0


class AnswerDelta(Struct, frozen=True):
    """Some of an answer, and the tokens it was chosen with, if it is text."""

    event: AnswerEvent
    tokens: tuple[SampledToken, ...] = ()


class AnswerEnd(Struct, frozen=True):
    """How an answer ended, and by which stop string if by one."""

    reason: EndReason
    usage: Usage
    stop: str | None = None


AnswerDeltaOrEnd: TypeAlias = AnswerDelta | AnswerEnd


class PromptRequest(Struct, frozen=True):
    """What one answer is asked with; `parser` None makes everything text.

    `remember` is told the text, the tokens and the end token of an answer that ended by one.
    """

    prompt_ids: list[int]
    request: GenerationRequest
    constraint: Constraint | None = None
    parser: "AnswerParser | None" = None
    parallel_calls: bool = True
    remember: Callable[[str, list[int], int], None] | None = None
