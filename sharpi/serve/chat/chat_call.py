"""ChatCall: a chat request, to which the requests of all chat APIs are translated."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from sharpi.config import GenerationRequest
from sharpi.dialogue.tools import Tool, ToolChoice

Message: TypeAlias = dict[str, Any]


class AnswerShape(Struct, frozen=True):
    """The required form of an answer's text: any text, JSON, or text that matches a grammar."""

    kind: Literal["text", "json_object", "json_schema", "grammar"] = "text"
    value: Any = None  # the JSON schema, or the text of the grammar
    param: str | None = None  # the request's parameter, for error messages
    wanted: Any = None  # a stricter JSON schema, used instead of `value` if it can be enforced


class ChatCall(Struct, frozen=True):
    """A chat request, independent of the API that it came from."""

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
    num_answers: int = 1  # answer i uses the given seed plus i
    # Calls follow the schemas of their tools even if no call is required.
    has_strict_calls: bool = False


def call_message(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a tool call in the form of OpenAI's messages; `arguments` is JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
