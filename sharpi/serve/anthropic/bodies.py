"""CountBody and MessagesBody: the types of the request bodies of Anthropic's API."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.generation_body import MAX_TOKENS, SamplingBody
from sharpi.serve.chat.shape_body import FormatBody
from sharpi.serve.http.body import Body, Ignored, only

MAX_TOOLS = 256
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]


class TextBlock(Body):
    """A text, in a system prompt or in a tool's result."""

    type: Annotated[Literal["text"], Meta(extra={"why": "the model reads text only"})]
    text: str
    cache_control: Ignored = None
    citations: Ignored = None


Texts = Annotated[
    str | list[TextBlock], Meta(extra={"must": "must be a string or a list of texts"})
]


class ContentBlock(Body):
    """A block of a message; its `type` is text, reasoning, a tool call or the result of one."""

    type: Annotated[
        Literal["text", "thinking", "redacted_thinking", "tool_use", "tool_result"],
        Meta(extra={"why": "the model reads text only"}),
    ]
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Texts | None = None
    is_error: bool | None = None
    signature: Ignored = None
    data: Ignored = None
    cache_control: Ignored = None
    citations: Ignored = None
    caller: Ignored = None


class MessageBody(Body):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[
        str | list[ContentBlock], Meta(extra={"must": "must be a string or a list of blocks"})
    ]


class ToolBody(Body):
    """A tool that the client offers."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    type: (
        Annotated[
            Literal["custom"],
            Meta(extra={"why": "sharpi has no tools of its own; clients run theirs"}),
        ]
        | None
    ) = None
    strict: bool | None = None
    cache_control: Ignored = None
    eager_input_streaming: Ignored = None
    defer_loading: Ignored = None
    allowed_callers: Ignored = None
    input_examples: Ignored = None


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


class EditBody(Body, forbid_unknown_fields=False):
    """An edit of the conversation; only edits that clear reasoning are accepted.

    They have no effect, because the chat template decides which reasoning it includes.
    """

    type: str


class ContextManagement(Body):
    """The edits of the conversation that the client requests."""

    edits: list[EditBody] | None = None


class CountBody(SamplingBody, kw_only=True):
    """A conversation whose tokens are counted."""

    messages: Annotated[
        list[MessageBody],
        Meta(min_length=1, extra={"must_have": "must have at least one message"}),
    ]
    system: Texts | None = None
    tools: (
        Annotated[list[ToolBody], Meta(max_length=MAX_TOOLS, extra={"items": "tools"})] | None
    ) = None
    tool_choice: ChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    thread: Ignored = None  # a value is refused with an error code that clients know (`request.py`)
    diagnostics: Ignored = None
    inference_geo: Ignored = None
    speed: Ignored = None
    container: Annotated[Any, only(why="sharpi runs no code")] = None
    mcp_servers: Annotated[Any, only([], why="sharpi calls no servers")] = None


class MessagesBody(CountBody, kw_only=True):
    """A conversation, and how to answer it."""

    max_tokens: Positive
    stop_sequences: (
        Annotated[
            list[str],
            Meta(
                max_length=64,
                extra={"must": "must be a string or a list of strings", "items": "strings"},
            ),
        ]
        | None
    ) = None
