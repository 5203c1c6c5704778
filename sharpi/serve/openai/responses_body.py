"""ResponsesBody: the type of the request body of /v1/responses."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.generation_body import Effort, GenerationBody, Limit, NumLogprobs
from sharpi.serve.chat.shape_body import FormatBody
from sharpi.serve.http.body import Body, Ignored, only
from sharpi.serve.openai.chat_body import Content
from sharpi.serve.openai.tools import MAX_TOOLS, ChoiceBody, FlatToolBody, Mode

_NOTHING_KEPT = "sharpi keeps no answers; send the conversation"


class ReasoningPart(Body):
    """A part of a reasoning item, or of its summary."""

    text: str
    type: Ignored = None


class InputItem(Body, rename={"is_async": "async"}):
    """An item of a conversation: a message, reasoning, a call or its output, by `type`."""

    type: str | None = None  # absent for a message
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    summary: list[ReasoningPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None
    encrypted_content: Ignored = None
    namespace: Ignored = None
    caller: Ignored = None
    is_async: Ignored = None


class ReasoningBody(Body):
    """How much to reason; summaries are ignored, because responses contain the reasoning itself."""

    effort: Effort | None = None
    mode: Annotated[Any, only("standard", why="there is one mode")] = None
    summary: Ignored = None
    generate_summary: Ignored = None
    context: Ignored = None


class TextBody(Body):
    """The form of the answer's text."""

    format: FormatBody | None = None
    verbosity: Ignored = None


class ResponsesBody(GenerationBody, kw_only=True):
    """A conversation as items, and how to answer it."""

    input: Annotated[
        str | list[InputItem], Meta(extra={"must": "must be a text or a list of items"})
    ]
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    top_logprobs: NumLogprobs | None = None
    include: Annotated[list[str], Meta(max_length=16)] | None = None
    reasoning: ReasoningBody | None = None
    reasoning_effort: Effort | None = None
    text: TextBody | None = None
    tools: (
        Annotated[list[FlatToolBody], Meta(max_length=MAX_TOOLS, extra={"items": "tools"})] | None
    ) = None
    tool_choice: Mode | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    stream_options: Ignored = None
    max_tool_calls: Ignored = None
    client_metadata: Ignored = None
    store: Annotated[Any, only(False, why=_NOTHING_KEPT)] = None
    background: Annotated[Any, only(False, why=_NOTHING_KEPT)] = None
    previous_response_id: Annotated[Any, only(why=_NOTHING_KEPT)] = None
    conversation: Annotated[Any, only(why=_NOTHING_KEPT)] = None
    prompt: Annotated[Any, only(why="sharpi keeps no prompts")] = None
    truncation: Annotated[Any, only("disabled", why="input that is too long is refused")] = None
    context_management: Annotated[Any, only([], why="sharpi edits no conversations")] = None
    moderation: Annotated[Any, only(why="sharpi does not moderate")] = None
