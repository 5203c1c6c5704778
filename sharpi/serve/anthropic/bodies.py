"""CountBody and MessagesBody: the types of the request bodies of Anthropic's API."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.generation_body import MAX_TOKENS, FormatBody, SamplingBody
from sharpi.serve.http.endpoint import Body

MAX_TOOLS = 256
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]


class ContentBlock(Body):
    """A block of a message; its `type` is text, reasoning, a tool call or the result of one.

    Blocks of other types are named in their place.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Any = None  # a text or blocks, of the result of a tool
    is_error: bool | None = None
    source: dict[str, Any] | None = None  # of a document; its text, if it has one, is in `data`


Blocks = str | list[ContentBlock]


class MessageBody(Body):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: Blocks

    @property
    def has_result(self) -> bool:
        """True if the message has the result of a tool."""
        return any(
            not isinstance(each, str) and each.type == "tool_result" for each in self.content
        )


class ToolBody(Body):
    """A tool that the client offers; one with another type is run by Anthropic's servers."""

    name: str = ""
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str = "custom"
    strict: bool | None = None


class ChoiceBody(Body):
    """Which tool must be called, if any."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingBody(Body):
    """How much the model may reason; `display` says whether the reasoning is sent."""

    type: Literal["enabled", "disabled", "adaptive"] | None = None
    budget_tokens: Positive | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Body):
    """The reasoning effort, and the required format of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: FormatBody | None = None


class CountBody(SamplingBody, kw_only=True):
    """A conversation whose tokens are counted."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    system: Blocks | None = None
    tools: Annotated[list[ToolBody], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None
    thread: Any = None  # refused with an error code that clients know (`request.py`)


class MessagesBody(CountBody, kw_only=True):
    """A conversation, and how to answer it."""

    max_tokens: Positive
    stop_sequences: Annotated[list[str], Meta(max_length=256)] | None = None
