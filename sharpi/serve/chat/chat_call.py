"""ChatCall: a chat request independent of the API; both APIs are translated to it."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from sharpi.config import GenerationRequest
from sharpi.dialogue.tools import Tool, ToolChoice

Message: TypeAlias = dict[str, Any]


class AnswerShape(Struct, frozen=True):
    """The form of an answer's text: anything, JSON, or a text of a grammar."""

    kind: Literal["text", "json_object", "json_schema", "grammar"] = "text"
    value: Any = None  # the JSON schema or the grammar's text
    param: str | None = None  # the request's parameter that gave it
    wanted: Any = None  # a narrower JSON schema, which holds instead if it can be enforced


class ChatCall(Struct, frozen=True):
    """A chat request."""

    messages: tuple[Message, ...]  # in OpenAI's form, with text contents only
    request: GenerationRequest
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    shape: AnswerShape = field(default_factory=AnswerShape)
    enable_thinking: bool | None = None
    thinking_budget: int | None = None  # tokens of reasoning at most
    # More variables for the chat template.
    template_values: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""  # the beginning of the answer, which the model continues
    num_answers: int = 1  # independent of each other; a given seed is increased by one for each
    has_strict_calls: bool = False  # calls follow their tools' schemas even if no call is required


def call_message(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a call in an assistant message; `arguments` is JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
