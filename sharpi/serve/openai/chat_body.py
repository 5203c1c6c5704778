"""ChatBody: the type of the request body of /v1/chat/completions."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.generation_body import (
    Count,
    Effort,
    GenerationBody,
    Limit,
    NumLogprobs,
    StreamOptions,
)
from sharpi.serve.http.body import Body, Ignored, only
from sharpi.serve.http.body_faults import raise_invalid
from sharpi.serve.openai.tools import MAX_TOOLS, ChoiceBody, Mode, ToolBody

_TEXT_ONLY = "the model writes text only"
TEXT_ONLY = Meta(extra={"why": "the model reads text only"})


class TextPart(Body):
    """A text within a message's content."""

    type: Annotated[
        Literal["text", "input_text", "output_text", "reasoning_text", "refusal"], TEXT_ONLY
    ]
    text: str | None = None
    refusal: str | None = None
    annotations: Ignored = None
    logprobs: Ignored = None
    cache_control: Ignored = None
    prompt_cache_breakpoint: Ignored = None


Content = Annotated[
    str | list[TextPart], Meta(extra={"must": "must be a string or a list of content parts"})
]


class CalledFunction(Body):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str | None = None


class CallBody(Body):
    """A tool call that the assistant made."""

    function: CalledFunction
    id: str | None = None
    type: Annotated[
        Literal["function"] | None, Meta(extra={"why": "only functions can be called"})
    ] = None
    index: Ignored = None


class MessageBody(Body):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[CallBody] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name of reasoning_content
    reasoning_details: Ignored = None
    annotations: Ignored = None
    refusal: Ignored = None
    audio: Ignored = None
    function_call: Ignored = None
    cache_control: Ignored = None


class ChatBody(GenerationBody, kw_only=True):
    """A conversation, and how to answer it."""

    messages: Annotated[
        list[MessageBody],
        Meta(min_length=1, extra={"must_have": "must have at least one message"}),
    ]
    n: Count | None = None
    max_completion_tokens: Limit | None = None
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    tools: (
        Annotated[list[ToolBody], Meta(max_length=MAX_TOOLS, extra={"items": "tools"})] | None
    ) = None
    tool_choice: Mode | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None  # a stream begins with the progress of the prompt
    continue_final_message: bool | None = None  # the last message is the beginning of the answer
    add_generation_prompt: bool | None = None
    prediction: Ignored = None
    verbosity: Ignored = None
    modalities: Annotated[Any, only(["text"], why=_TEXT_ONLY)] = None
    audio: Annotated[Any, only(why=_TEXT_ONLY)] = None
    store: Annotated[Any, only(False, why="sharpi keeps no answers")] = None
    web_search_options: Annotated[Any, only(why="sharpi does not search the web")] = None
    moderation: Annotated[Any, only(why="sharpi does not moderate")] = None
    functions: Annotated[Any, only([], why="use 'tools'")] = None
    function_call: Annotated[Any, only("none", "auto", why="use 'tool_choice'")] = None


def text_of(content: Content | None, path: str) -> str | None:
    """Returns a string content unchanged, or joins the texts of its parts by newlines.

    Returns None for None.
    """
    if content is None or isinstance(content, str):
        return content
    return "\n".join(_part_text(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part_text(part: TextPart, path: str) -> str:
    name = "refusal" if part.type == "refusal" else "text"
    text = part.refusal if name == "refusal" else part.text
    return raise_invalid(f"{path}.{name}", "is required") if text is None else text
