"""ChatCall: a chat request independent of the API; both APIs are translated to it."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from sharpi.config import GenerationRequest
from sharpi.dialogue.tools import Tool, ToolChoice

Message: TypeAlias = dict[str, Any]


class AnswerShape(Struct, frozen=True):
    """What the text of an answer has to be: anything, some JSON, or what a grammar derives.

    `value` is the JSON schema or the grammar's text, `param` the parameter it came by.
    """

    kind: Literal["text", "json_object", "json_schema", "grammar"] = "text"
    value: Any = None
    param: str | None = None


class ChatCall(Struct, frozen=True):
    """Messages in OpenAI's shape, with text contents only, and how they are to be answered.

    `prefill`: the answer's beginning, which the model goes on from. `thinking_budget`: tokens of
    reasoning at most. `template_values`: further variables for the chat template. `num_answers`
    are independent of each other; with a seed, each has its own that follows from it.
    `has_strict_calls`: also calls that nobody forces follow the schemas of their tools.
    """

    messages: tuple[Message, ...]
    request: GenerationRequest
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    shape: AnswerShape = field(default_factory=AnswerShape)
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    template_values: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    num_answers: int = 1
    has_strict_calls: bool = False


def call_message(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a call in an assistant message; `arguments` is JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
