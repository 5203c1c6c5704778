"""Turns the bodies of /v1/messages and /v1/messages/count_tokens into a ChatCall."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.anthropic.bodies import ChoiceBody, CountBody, MessagesBody, ToolBody
from sharpi.serve.anthropic.content import messages_of, system_of
from sharpi.serve.anthropic.limits import with_limits
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall, Message, Thinking, left_out
from sharpi.serve.chat.generation_body import (
    Effort,
    logit_bias_of,
    sampling_of,
    shape_of,
    thinking_of,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import ApiError, raise_invalid
from sharpi.settings import GenerationRequest

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


def tools_of(bodies: Sequence[ToolBody] | None) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Returns the client's tools, and the types of those that Anthropic's servers would run.

    Raises ApiError for an empty name or two equal names.
    """
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
    """Returns the limits of reasoning, and whether to send the reasoning to the client.

    If the body has no `thinking`, the model decides how much it reasons.
    """
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
    """Returns the messages without a final assistant message, and the text of that message.

    The model continues that text; it is empty if the last message is not the assistant's.
    """
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        return messages, ""
    return messages[:-1], last["content"]
