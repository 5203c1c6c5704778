"""ChatCall: a chat request independent of the API; both APIs are translated to it."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from sharpi.config import GenerationRequest
from sharpi.dialogue.tools import Tool, ToolChoice

Message: TypeAlias = dict[str, Any]


class AnswerShape(Struct, frozen=True):
    """The form of an answer's text: anything, JSON, or text that follows a grammar."""

    kind: Literal["text", "json_object", "json_schema", "grammar"] = "text"
    value: Any = None  # the JSON schema, or the text of the grammar
    param: str | None = None  # the parameter of the request that gave it
    wanted: Any = None  # a narrower JSON schema, used instead if it can be enforced


class ChatCall(Struct, frozen=True):
    """A chat request."""

    messages: tuple[Message, ...]  # in OpenAI's form, with text contents only
    request: GenerationRequest
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    shape: AnswerShape = field(default_factory=AnswerShape)
    enable_thinking: bool | None = None
    thinking_budget: int | None = None  # the most tokens of reasoning
    # Additional variables for the chat template.
    template_values: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""  # the beginning of the answer, which the model continues
    num_answers: int = 1  # independent of each other; each one adds 1 to a given seed
    # Calls follow the schemas of their tools even if no call is required.
    has_strict_calls: bool = False


def call_message(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a tool call as an assistant message holds it; `arguments` is JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
