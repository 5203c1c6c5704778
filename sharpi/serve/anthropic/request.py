"""Turns the bodies of /v1/messages and /v1/messages/count_tokens into a ChatCall."""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.config import GenerationRequest
from sharpi.serve.anthropic.bodies import ContextManagement, CountBody, MessagesBody
from sharpi.serve.anthropic.content import messages_of, system_of
from sharpi.serve.anthropic.limits import with_limits
from sharpi.serve.anthropic.tools import choice_of, tools_of
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall, Message
from sharpi.serve.chat.generation_body import (
    Effort,
    Thinking,
    logit_bias_of,
    sampling_of,
    thinking_of,
)
from sharpi.serve.chat.shape_body import shape_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body_faults import raise_invalid
from sharpi.serve.http.errors import ApiError


class MessagesRequest(Struct, frozen=True):
    """The ChatCall of a /v1/messages request, and how its answer is sent."""

    call: ChatCall
    is_stream: bool = False
    shows_thinking: bool = True  # whether the reasoning is sent


def messages_request(body: MessagesBody, host: ModelHost) -> MessagesRequest:
    """Translates the body to a MessagesRequest; raises ApiError for contradictory values."""
    call, shows_thinking = _call(body, host)
    if call.thinking_budget is not None and call.thinking_budget >= body.max_tokens:
        raise_invalid("thinking", "must have budget_tokens less than max_tokens")
    request = GenerationRequest(
        max_tokens=body.max_tokens,
        stop=tuple(text for text in body.stop_sequences or () if text),
        sampling=sampling_of(body, host.settings.sampling),
        logit_bias=logit_bias_of(body, host.tokenizer.vocab_size),
    )
    return MessagesRequest(replace(call, request=request), body.stream or False, shows_thinking)


def counted_call(body: CountBody, host: ModelHost) -> ChatCall:
    """Translates a token-counting body to a ChatCall, from which the prompt is rendered."""
    return _call(body, host)[0]


def _call(body: CountBody, host: ModelHost) -> tuple[ChatCall, bool]:
    """Returns the ChatCall without length limits and sampling, and whether to send reasoning."""
    if body.model is not None:
        host.require_model(body.model)
    _refuse_thread(body)
    _refuse_edits(body.context_management)
    tools = tools_of(body.tools)
    effort, shape = _output_config(body)
    thinking, shows_thinking = _thinking(body, effort)
    messages, prefill = _without_prefill(messages_of(body))
    call = ChatCall(
        (*system_of(body), *messages),
        GenerationRequest(),
        tools,
        choice_of(body.tool_choice, tools),
        shape,
        thinking.is_enabled,
        thinking.budget,
        thinking.template_values,
        prefill,
        has_strict_calls=any(tool.strict for tool in body.tools or ()),
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
    shape = shape_of(config.format, "output_config.format", nested=False)
    wanted = with_limits(shape.value)
    return config.effort, shape if wanted == shape.value else replace(shape, wanted=wanted)


def _refuse_edits(management: ContextManagement | None) -> None:
    """Raises ApiError for edits of the conversation, unless they clear reasoning."""
    for index, edit in enumerate((management and management.edits) or ()):
        if not edit.type.startswith("clear_thinking_"):
            path = f"context_management.edits[{index}].type"
            message = f"'{edit.type[:40]}' cannot be honoured: sharpi edits no conversations"
            raise_invalid(path, message)


def _without_prefill(messages: list[Message]) -> tuple[list[Message], str]:
    """Returns the messages without a final assistant message, and the text of that message.

    The model continues that text; it is empty if the last message is not the assistant's.
    """
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        return messages, ""
    return messages[:-1], last["content"]
