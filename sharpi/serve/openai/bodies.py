"""The types of the request bodies of OpenAI's APIs: chat completions, completions and responses."""

import json
from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.chat_call import omitted
from sharpi.serve.chat.generation_body import (
    Count,
    Effort,
    FormatBody,
    GenerationBody,
    Limit,
    NumLogprobs,
)
from sharpi.serve.http.endpoint import Body
from sharpi.serve.http.errors import raise_invalid

MAX_TOOLS = 256
Mode = Literal["auto", "none", "required"]


class Part(Body):
    """A part of a message's content; texts are read, other types are named in their place.

    Reasoning, calls and results may be parts, too, as in Anthropic's API.
    """

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[Part] | None" = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | list[Part] | None" = None


Content = str | list[Part]


class CalledFunction(Body):
    """A function's name, and its arguments as JSON text."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallBody(Body):
    """A tool call that the assistant made."""

    function: CalledFunction
    id: str | None = None


class MessageBody(Body):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | dict[str, Any] | None = None  # an object may be the result of a tool
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[CallBody] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name of reasoning_content


class FunctionBody(Body):
    """A function with the JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(Body):
    """A tool: a function under `function` (chat) or with its fields beside `type` (responses).

    Other types than `function`, `custom` and `namespace` are left out: a server would have to run
    them.
    """

    type: str = "function"
    function: FunctionBody | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    tools: "list[ToolBody] | None" = None  # of a namespace


class NamedTool(Body):
    """A tool by its name, which may be under `function`."""

    name: str | None = None
    function: "NamedTool | None" = None

    @property
    def tool(self) -> str | None:
        """The tool's name."""
        return self.name if self.function is None else self.function.name


class AllowedTools(Body):
    """The tools that may be called."""

    tools: list[NamedTool]
    mode: Literal["auto", "required"] | None = None


class ChoiceBody(NamedTool, kw_only=True):
    """The tool that must be called, or the tools that may be called."""

    type: str
    mode: Literal["auto", "required"] | None = None
    tools: list[NamedTool] | None = None
    allowed_tools: AllowedTools | None = None


Tools = Annotated[list[ToolBody], Meta(max_length=MAX_TOOLS)]


class ChatBody(GenerationBody, kw_only=True):
    """A conversation, and how to answer it."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    n: Count | None = None
    max_completion_tokens: Limit | None = None
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    tools: Tools | None = None
    tool_choice: Mode | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    return_progress: bool | None = None  # a stream begins with the progress of the prompt
    continue_final_message: bool | None = None  # the last message is the beginning of the answer
    add_generation_prompt: bool | None = None


class CompletionsBody(GenerationBody, kw_only=True):
    """Prompts to continue."""

    prompt: str | list[str | int | list[Any]]
    n: Count | None = None
    best_of: int | None = None  # must equal n, because every answer is sent
    echo: bool | None = None
    logprobs: bool | NumLogprobs | None = None  # llama.cpp's clients also send true or false


class InputItem(Body):
    """An item of a conversation: a message, reasoning, a call or its output, by `type`."""

    type: str | None = None  # absent for a message
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    summary: list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None  # of a custom tool
    output: Content | dict[str, Any] | None = None

    @property
    def speaker(self) -> str:
        """The role of whoever wrote the item; reasoning and calls are the assistant's."""
        kind = self.type or "message"
        other = "tool" if kind.endswith("_output") else "assistant"
        return self.role or "user" if kind == "message" else other


class ReasoningBody(Body):
    """How much to reason; summaries are ignored, because responses contain the reasoning itself."""

    effort: Effort | None = None


class TextBody(Body):
    """The form of the answer's text."""

    format: FormatBody | None = None


class ResponsesBody(GenerationBody, kw_only=True):
    """A conversation as items, and how to answer it."""

    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    top_logprobs: NumLogprobs | None = None
    include: list[str] | None = None
    reasoning: ReasoningBody | None = None
    reasoning_effort: Effort | None = None
    text: TextBody | None = None
    tools: Tools | None = None
    tool_choice: Mode | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    # Repeated in the response, and otherwise without effect.
    max_tool_calls: int | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    user: str | None = None


def text_of(content: Content | dict[str, Any] | None, *, refuses: str | None = None) -> str | None:
    """Returns a string content unchanged, or joins its parts' texts by newlines; None for None.

    A part that the model cannot read is named in its place, as in `[image omitted]`. With
    `refuses`, the path of the content, it raises ApiError instead.
    """
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, dict):
        if refuses is not None:
            raise_invalid(refuses, "must be a text or a list of parts")
        return json.dumps(content, ensure_ascii=False)
    return "\n".join(_part_text(part, refuses) for part in content)


def _part_text(part: Part, refuses: str | None) -> str:
    if part.type == "refusal" or part.text is not None:
        return part.refusal or part.text or ""
    return omitted(part.type, refuses)
