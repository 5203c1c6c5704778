"""Turns the bodies of /v1/messages, with their contents, into a ChatCall."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from sharpi.dialogue.history import last_answer
from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.anthropic.bodies import (
    Blocks,
    ChoiceBody,
    ContentBlock,
    CountBody,
    MessageBody,
    MessagesBody,
    ToolBody,
)
from sharpi.serve.anthropic.limits import with_limits
from sharpi.serve.chat.chat_call import (
    AnswerShape,
    ChatCall,
    Message,
    Thinking,
    call_message,
    omitted,
)
from sharpi.serve.chat.generation_body import (
    Effort,
    left_out,
    logit_bias_of,
    sampling_of,
    shape_of,
    thinking_of,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import ApiError, raise_invalid
from sharpi.settings import GenerationRequest

# Claude Code puts a line that changes with each request before its system prompt; with it, no
# request would find the prompt of the one before.
_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")


def system_of(body: CountBody) -> list[Message]:
    """Returns a list with the system prompt as a message; empty without one."""
    blocks = body.system or ""
    texts = [blocks] if isinstance(blocks, str) else [_text(block) for block in blocks]
    text = "\n".join(filter(None, (_BILLING.sub("", each) for each in texts)))
    return [{"role": "system", "content": text}] if text else []


def messages_of(body: CountBody) -> list[Message]:
    """Returns all messages of the body in OpenAI's form; a picture in a question is refused."""
    messages: list[Message] = []
    answered = last_answer("tool" if each.has_result else each.role for each in body.messages)
    for index, each in enumerate(body.messages):
        messages += _messages(each, f"messages[{index}].content" if index > answered else None)
    return messages


def _messages(body: MessageBody, refuses: str | None) -> list[Message]:
    """Converts one message to OpenAI's form, in which each tool result is a separate message."""
    if isinstance(body.content, str):
        return [{"role": body.role, "content": body.content}]
    if body.role == "assistant":
        return [_assistant(body.content)]
    return _user(body.role, body.content, refuses)


def _user(role: str, blocks: Iterable[ContentBlock], refuses: str | None) -> list[Message]:
    results: list[Message] = []
    texts: list[str] = []
    for block in blocks:
        if block.type == "tool_result":
            results.append(_result(block))
        else:
            texts.append(_text(block, refuses))
    spoken = [{"role": role, "content": "\n".join(texts)}] if texts or not results else []
    return results + spoken


def _assistant(blocks: Iterable[ContentBlock]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        match block.type:
            case "thinking":
                thoughts.append(block.thinking or "")
            case "tool_use":
                arguments = json.dumps(block.input or {}, ensure_ascii=False)
                calls.append(call_message(block.id or "", block.name or "", arguments))
            case "text":
                texts.append(block.text or "")
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return message | ({"tool_calls": calls} if calls else {})


def _result(block: ContentBlock) -> Message:
    text = _result_text(block.content)
    if block.is_error:
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": text}


def _result_text(content: Any) -> str:
    """Returns the text of a tool's result, with the names of parts that are not text."""
    try:
        blocks = msgspec.convert(content or "", Blocks)
    except msgspec.ValidationError:
        return json.dumps(content, ensure_ascii=False)
    return blocks if isinstance(blocks, str) else "\n".join(map(_text, blocks))


def _text(block: ContentBlock, refuses: str | None = None) -> str:
    if block.type == "text":
        return block.text or ""
    source = block.source or {}
    if source.get("type") == "text":
        return str(source.get("data", ""))
    return omitted(block.type, refuses)


_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


def tools_of(bodies: Sequence[ToolBody] | None) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Returns the client's tools, and the types of others; raises ApiError for bad names."""
    own = [each for each in bodies or () if each.type == "custom"]
    for index, body in enumerate(own):
        if not body.name.strip():
            raise_invalid(f"tools[{index}].name", "must not be empty")
    schema = {"type": "object", "properties": {}}
    tools = tuple(
        Tool(each.name, each.description or "", each.input_schema or schema) for each in own
    )
    if len({tool.name for tool in tools}) < len(tools):
        raise_invalid("tools", "has two tools with the same name")
    return tools, tuple(each.type for each in bodies or () if each.type != "custom")


def choice_of(body: ChoiceBody | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """Converts `tool_choice`; raises ApiError if it names a tool that is not in `tools`."""
    if body is None:
        return ToolChoice()
    name = body.name if body.type == "tool" else None
    if body.type == "tool" and name is None:
        raise_invalid("tool_choice.name", "is required")
    if name is not None and name not in {tool.name for tool in tools}:
        raise_invalid("tool_choice.name", f"'{name[:64]}' is not among the tools")
    if _MODES[body.type] == "required" and not tools:
        raise_invalid("tool_choice", "requires a call, but there are no tools")
    return ToolChoice(_MODES[body.type], name, not body.disable_parallel_tool_use)


def messages_call(body: MessagesBody, host: ModelHost) -> tuple[ChatCall, bool]:
    """Translates the body to a ChatCall, and to whether its reasoning is sent; raises ApiError."""
    call, shows_thinking = _call(body, host)
    if call.thinking.budget is not None and call.thinking.budget >= body.max_tokens:
        raise_invalid("thinking", "must have budget_tokens less than max_tokens")
    request = GenerationRequest(
        max_tokens=body.max_tokens,
        stop=tuple(text for text in body.stop_sequences or () if text),
        sampling=sampling_of(body, host.settings.sampling),
        logit_bias=logit_bias_of(body, host.tokenizer.vocab_size),
    )
    return replace(call, request=request), shows_thinking


def counted_call(body: CountBody, host: ModelHost) -> ChatCall:
    """Translates a token-counting body to a ChatCall, from which the prompt is rendered."""
    return _call(body, host)[0]


def _call(body: CountBody, host: ModelHost) -> tuple[ChatCall, bool]:
    """Returns the ChatCall without length limits and sampling, and whether to send reasoning."""
    if body.model is not None:
        host.require_model(body.model)
    _refuse_thread(body)
    tools, of_servers = tools_of(body.tools)
    effort, shape = _output_config(body)
    thinking, shows_thinking = _thinking(body, effort)
    messages, prefill = _without_prefill(messages_of(body))
    call = ChatCall(
        (*system_of(body), *messages),
        GenerationRequest(),
        tools,
        choice_of(body.tool_choice, tools),
        shape,
        thinking,
        prefill,
        has_strict_calls=any(tool.strict for tool in body.tools or ()),
        notes=left_out(of_servers),
    )
    return call, shows_thinking


def _refuse_thread(body: CountBody) -> None:
    """Refuses `thread` with an error code that lets Anthropic's tool runner continue without it."""
    if body.thread is not None:
        message = "'thread' cannot be honoured: sharpi keeps no conversations"
        details = {"error_code": "thread_unsupported_request"}
        raise ApiError(400, message, param="thread", details=details)


def _thinking(body: CountBody, effort: Effort | None) -> tuple[Thinking, bool]:
    """Returns the limits of reasoning, by default the model's, and whether the client gets it."""
    otherwise = thinking_of(body, effort)
    asked = body.thinking
    if asked is None:
        return otherwise, True
    if asked.type is None or (asked.type == "enabled" and asked.budget_tokens is None):
        raise_invalid("thinking", 'must have a type, and with "enabled" also budget_tokens')
    is_shown = asked.display != "omitted"
    is_enabled = asked.type != "disabled"
    return Thinking(is_enabled, asked.budget_tokens, otherwise.template_values), is_shown


def _output_config(body: CountBody) -> tuple[Effort | None, AnswerShape]:
    """Returns the reasoning effort and the required form of the answer."""
    config = body.output_config
    if config is None:
        return None, AnswerShape()
    if config.format is None:
        return config.effort, AnswerShape()
    shape = shape_of(config.format, "output_config.format")
    wanted = with_limits(shape.value)
    return config.effort, shape if wanted == shape.value else replace(shape, wanted=wanted)


def _without_prefill(messages: list[Message]) -> tuple[list[Message], str]:
    """Returns the messages without a final assistant message, and the text of that message."""
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        return messages, ""
    return messages[:-1], last["content"]
