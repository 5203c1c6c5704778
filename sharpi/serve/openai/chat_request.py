"""Translates the body of /v1/chat/completions to a ChatCall, and the tools of both OpenAI APIs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sharpi.dialogue.history import last_answer
from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.chat.chat_call import ChatCall, Message, call_message
from sharpi.serve.chat.generation_body import (
    answer_shape,
    first_limit,
    generation_of,
    left_out,
    thinking_of,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.openai.bodies import (
    CallBody,
    CalledFunction,
    ChatBody,
    ChoiceBody,
    FunctionBody,
    MessageBody,
    Mode,
    ResponsesBody,
    ToolBody,
    text_of,
)

# A custom tool takes one text, which a model writes as the argument of a function.
CUSTOM_ARGUMENT = "input"
_CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
    "required": [CUSTOM_ARGUMENT],
}


class OfferedTools(Struct, frozen=True):
    """The tools that the model may call, and those that only another server could run."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    custom: frozenset[str] = frozenset()  # the names of tools that take a text
    is_strict: bool = False  # a tool is marked as strict
    left_out: tuple[str, ...] = ()  # types of tools that are not offered


def offered_tools(body: ChatBody | ResponsesBody) -> OfferedTools:
    """Converts the tools and the choice among them; raises ApiError for bad names."""
    tools: dict[str, Tool] = {}
    custom, left_out, is_strict = set(), [], False
    for path, tool, in_namespace in _flat(body.tools or ()):
        function = _function_of(tool)
        if function is None:
            left_out.append(tool.type)
            continue
        if not function.name.strip():
            raise_invalid(f"{path}.name", "must not be empty")
        if function.name in tools:
            if in_namespace:
                continue
            raise_invalid("tools", "has two tools with the same name")
        schema = function.parameters or {"type": "object", "properties": {}}
        tools[function.name] = Tool(function.name, function.description or "", schema)
        is_strict |= bool(function.strict)
        if tool.type == "custom":
            custom.add(function.name)
    choice, allowed = _choice(body, tools)
    return OfferedTools(allowed, choice, frozenset(custom), is_strict, tuple(left_out))


def _flat(bodies: Iterable[ToolBody]) -> Iterator[tuple[str, ToolBody, bool]]:
    """Yields the tools with their paths, and those within a namespace in its place."""
    for index, body in enumerate(bodies):
        if body.type == "namespace":
            yield from (
                (f"tools[{index}].{path}", inner, True)
                for path, inner, _ in _flat(body.tools or ())
            )
        else:
            yield f"tools[{index}]", body, False


def _function_of(body: ToolBody) -> FunctionBody | None:
    """Returns the function of a tool; None for a tool that a server would have to run."""
    if body.type == "custom":
        return FunctionBody(name=body.name or "", description=body.description, parameters=_CUSTOM)
    if body.type != "function":
        return None
    return body.function or FunctionBody(
        name=body.name or "",
        description=body.description,
        parameters=body.parameters,
        strict=body.strict,
    )


def _choice(
    body: ChatBody | ResponsesBody, tools: dict[str, Tool]
) -> tuple[ToolChoice, tuple[Tool, ...]]:
    """Returns the choice, and the tools that it allows."""
    choice, allowed = _mode_or_tool(body.tool_choice)
    wanted = {choice.name} if choice.name else allowed
    missing = (wanted or set()) - tools.keys()
    if missing:
        message = f"names the tool '{min(missing)[:64]}', which is not among the tools"
        raise_invalid("tool_choice", message)
    if choice.mode == "required" and not tools:
        raise_invalid("tool_choice", "requires a call, but there are no tools")
    left = (tool for name, tool in tools.items() if allowed is None or name in allowed)
    return replace(choice, parallel=body.parallel_tool_calls is not False), tuple(left)


def _mode_or_tool(body: Mode | ChoiceBody | None) -> tuple[ToolChoice, set[str] | None]:
    if not isinstance(body, ChoiceBody):
        return ToolChoice(body or "auto"), None
    if body.type in ("function", "custom"):
        name = body.tool or raise_invalid("tool_choice", "must have a tool's name")
        return ToolChoice("required", name), None
    if body.type != "allowed_tools":
        raise_invalid("tool_choice.type", f"'{body.type[:40]}' is no tool that the model can call")
    mode, tools = body.mode, body.tools
    if body.allowed_tools is not None:
        mode, tools = body.allowed_tools.mode, body.allowed_tools.tools
    allowed = {each.tool for each in tools or () if each.tool is not None}
    if not allowed:
        raise_invalid("tool_choice", "must have the names of tools")
    return ToolChoice("required" if mode == "required" else "auto"), allowed


_BLOCKS = ("tool_use", "tool_result", "thinking")  # which some clients send as they are
_SAME_ROLES = {"developer": "system", "function": "tool"}


def chat_call(body: ChatBody, host: ModelHost) -> ChatCall:
    """Translates the body to a ChatCall; raises ApiError for contradictory values."""
    limit = first_limit(body.max_completion_tokens, body.max_tokens, body.n_predict)
    request = generation_of(body, host, limit, _num_logprobs(body))
    messages, prefill = _messages_and_prefill(body)
    offered = offered_tools(body)
    return ChatCall(
        messages,
        request,
        offered.tools,
        offered.choice,
        answer_shape(body),
        thinking_of(body, body.reasoning_effort),
        prefill,
        body.n or 1,
        offered.is_strict,
        left_out(offered.left_out),
    )


def _num_logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise_invalid("top_logprobs", "needs 'logprobs': true")
    return None


def _messages_and_prefill(body: ChatBody) -> tuple[tuple[Message, ...], str]:
    """Returns the messages, and the beginning of an answer that the model continues."""
    messages = messages_of(body.messages)
    continues = bool(body.continue_final_message)
    if body.add_generation_prompt is continues:
        why = "it goes with 'continue_final_message'"
        raise_invalid("add_generation_prompt", f"cannot be honoured: {why}")
    if not continues:
        return messages, ""
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        raise_invalid("continue_final_message", "needs an assistant's text as the last message")
    return messages[:-1], last["content"]


def messages_of(bodies: Sequence[MessageBody]) -> tuple[Message, ...]:
    """Converts the messages; a picture in a question is refused, one in the history is named."""
    messages = [(i, part) for i, each in enumerate(bodies) for part in _without_blocks(each)]
    answered = last_answer(each.role for _, each in messages)
    return tuple(
        _message(each, f"messages[{i}].content" if n > answered and each.role == "user" else None)
        for n, (i, each) in enumerate(messages)
    )


def _without_blocks(body: MessageBody) -> Iterator[MessageBody]:
    """Yields a message's results of tools, and the message without parts of Anthropic's API."""
    parts = body.content if isinstance(body.content, list) else []
    kinds = {kind: [each for each in parts if each.type == kind] for kind in _BLOCKS}
    if not any(kinds.values()):
        yield body
        return
    for each in kinds["tool_result"]:
        yield MessageBody("tool", each.content, tool_call_id=each.tool_use_id)
    rest = [each for each in parts if each.type not in _BLOCKS]
    if rest or not kinds["tool_result"]:
        calls = [
            CallBody(CalledFunction(each.name, each.input), each.id) for each in kinds["tool_use"]
        ]
        thoughts = [text_of(each.thinking) or "" for each in kinds["thinking"]]
        yield replace(
            body,
            content=rest,
            tool_calls=[*(body.tool_calls or ()), *calls],
            reasoning_content="\n".join(thoughts) or body.reasoning_content,
        )


def _message(body: MessageBody, refuses: str | None) -> Message:
    """Converts one message for a ChatCall; the role "developer" becomes "system"."""
    message: Message = {"role": _SAME_ROLES.get(body.role, body.role)}
    if body.role == "assistant":
        message |= _assistant(body)
    if body.role in ("tool", "function") and body.tool_call_id:
        message["tool_call_id"] = body.tool_call_id
    content: Any = body.content
    if isinstance(content, list) and len(content) > 1 and body.role != "assistant":
        texts = [text_of([part], refuses=refuses) for part in content]
        content = [{"type": "text", "text": text} for text in texts]  # which the template joins
    elif not isinstance(content, str):
        content = text_of(content, refuses=refuses) or ""
    return message | {"content": content} | ({"name": body.name} if body.name else {})


def _assistant(body: MessageBody) -> Message:
    """Returns the fields of an assistant message that hold its reasoning and tool calls."""
    reasoning = body.reasoning_content or body.reasoning
    message: Message = {"reasoning_content": reasoning} if reasoning else {}
    calls = [_call(each) for each in body.tool_calls or ()]
    return message | ({"tool_calls": calls} if calls else {})


def _call(body: CallBody) -> dict[str, Any]:
    arguments = body.function.arguments or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return call_message(body.id or "", body.function.name or "", arguments)
