"""ChatCall: a chat request, to which the requests of all chat APIs are translated.

PromptRequest asks for one answer to it; AnswerDelta and AnswerEnd are the parts of the answer.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from sharpi.dialogue.answer_text import AnswerEvent
from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.engine.sampling.generation_state import Timings
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.host.answer_group import AnswerRequest
from sharpi.serve.http.errors import raise_invalid
from sharpi.settings import GenerationRequest

if TYPE_CHECKING:
    from sharpi.dialogue.answer_parser import AnswerParser


Message: TypeAlias = dict[str, Any]


class AnswerShape(Struct, frozen=True):
    """The required form of an answer's text: any text, JSON, or text that matches a grammar."""

    kind: Literal["text", "json_object", "json_schema", "grammar"] = "text"
    value: Any = None  # the JSON schema, or the text of the grammar
    param: str | None = None  # the request's parameter, for error messages
    wanted: Any = None  # a stricter JSON schema, used instead of `value` if it can be enforced


class Thinking(Struct, frozen=True):
    """A request's settings of reasoning: on or off, the budget, and template variables."""

    is_enabled: bool | None = None  # None leaves the decision to the template
    budget: int | None = None  # the most tokens of reasoning
    # Additional variables for the chat template.
    template_values: Mapping[str, Any] = field(default_factory=dict)


class ChatCall(Struct, frozen=True):
    """A chat request, independent of the API that it came from."""

    messages: tuple[Message, ...]  # in OpenAI's form; contents are texts or lists of them
    request: GenerationRequest
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    shape: AnswerShape = field(default_factory=AnswerShape)
    thinking: Thinking = field(default_factory=Thinking)
    prefill: str = ""  # the beginning of the answer, which the model continues
    num_answers: int = 1  # answer i uses the given seed plus i
    # Calls follow the schemas of their tools even if no call is required.
    has_strict_calls: bool = False
    # Parts of the request that have no effect, a line each for the log.
    notes: tuple[str, ...] = ()


def call_message(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a tool call in the form of OpenAI's messages; `arguments` is JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


_KINDS = ("image", "audio", "video", "file", "document")


def omitted(kind: str, refuses: str | None = None) -> str:
    """Returns `[image omitted]` or the like, or raises ApiError for the path `refuses`."""
    name = next((each for each in _KINDS if each in kind), kind[:40])
    if refuses is not None:
        raise_invalid(refuses, f"has a part of type '{kind[:40]}', and the model reads text only")
    return f"[{name} omitted]"


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
    timings: Timings = field(default_factory=Timings)


AnswerDeltaOrEnd: TypeAlias = AnswerDelta | AnswerEnd


class PromptRequest(AnswerRequest, frozen=True, eq=False):
    """The request for one answer, with the parser for reasoning and tool calls in its text."""

    parser: "AnswerParser | None" = None  # None treats the complete answer as text
    parallel_calls: bool = True
    notes: tuple[str, ...] = ()  # what the constraint does not enforce, a line each
    # Called with text, token ids and end token when the answer ends by an end token.
    remember: Callable[[str, list[int], int], None] | None = None
