"""Reads the bodies of /v1/messages and its count_tokens into a ChatCall."""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.config import GenerationRequest
from sharpi.serve.anthropic.content import read_messages, read_system
from sharpi.serve.anthropic.tools import read_choice, read_tools
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall, Message
from sharpi.serve.chat.common_fields import read_model, shape_of
from sharpi.serve.chat.sampling_fields import read_logit_bias, read_sampling
from sharpi.serve.chat.thinking_fields import Thinking, read_thinking
from sharpi.serve.chat.tool_fields import wants_strict_calls
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields

_MAX_TOKENS = 2**31 - 1
_MAX_STOPS = 64
# Fields that only concern billing, caching and monitoring.
_HARMLESS = ("metadata", "service_tier", "cache_control", "diagnostics", "inference_geo", "speed")


class MessagesRequest(Struct, frozen=True):
    """A call and the way to send its answer."""

    call: ChatCall
    is_stream: bool = False
    shows_thinking: bool = True  # sends the reasoning


def read_messages_request(body: object, host: ModelHost) -> MessagesRequest:
    """Reads a body; raises ApiError if it is malformed, or has unknown or unsupported fields."""
    fields = RequestFields(body)
    max_tokens = fields.integer("max_tokens", 1, _MAX_TOKENS)
    if max_tokens is None:
        fields.fail("max_tokens", "is required")
    call, shows_thinking = _read_call(fields, host)
    if call.thinking_budget is not None and call.thinking_budget >= max_tokens:
        fields.fail("thinking", "must have budget_tokens less than max_tokens")
    request = GenerationRequest(
        max_tokens=max_tokens,
        stop=fields.texts("stop_sequences", _MAX_STOPS),
        sampling=read_sampling(fields, host.settings.sampling),
        logit_bias=read_logit_bias(fields, host.tokenizer.vocab_size),
    )
    is_stream = fields.flag("stream") or False
    fields.close()
    return MessagesRequest(replace(call, request=request), is_stream, shows_thinking)


def read_count_request(body: object, host: ModelHost) -> ChatCall:
    """Reads the call with the prompt to be counted; its body says nothing about the answer."""
    fields = RequestFields(body)
    call, _ = _read_call(fields, host)
    fields.close()
    return call


def _read_call(fields: RequestFields, host: ModelHost) -> tuple[ChatCall, bool]:
    """Reads all but the sampling request, and whether reasoning is shown."""
    read_model(fields, host)
    fields.ignore(*_HARMLESS)
    fields.only("container", (), "sharpi runs no code")
    fields.only("mcp_servers", ([],), "sharpi calls no servers")
    _refuse_edits(fields)
    system, messages = read_system(fields), read_messages(fields)
    tools = read_tools(fields)
    choice = read_choice(fields, tools)
    effort, shape = _output_config(fields)
    thinking, shows_thinking = _thinking(fields, effort)
    messages, prefill = _without_prefill(messages)
    call = ChatCall(
        (*system, *messages),
        GenerationRequest(),
        tools,
        choice,
        shape,
        thinking.is_enabled,
        thinking.budget,
        thinking.template_values,
        prefill,
        has_strict_calls=wants_strict_calls(fields),
    )
    return call, shows_thinking


def _thinking(fields: RequestFields, effort: str | None) -> tuple[Thinking, bool]:
    """Reads the limits of reasoning, and whether it is shown.

    Without the field the model decides how much it reasons.
    """
    otherwise = read_thinking(fields, effort)
    asked = fields.fields("thinking")
    if asked is None:
        return otherwise, True
    kind = asked.choice("type", ("enabled", "disabled", "adaptive"))
    budget = asked.integer("budget_tokens", 1, _MAX_TOKENS)
    if kind is None or (kind == "enabled" and budget is None):
        fields.fail("thinking", 'must have a type, and with "enabled" also budget_tokens')
    is_shown = asked.choice("display", ("summarized", "omitted")) != "omitted"
    asked.close()
    return Thinking(kind != "disabled", budget, otherwise.template_values), is_shown


def _output_config(fields: RequestFields) -> tuple[str | None, AnswerShape]:
    """Reads the effort and the form of the answer."""
    config = fields.fields("output_config")
    if config is None:
        return None, AnswerShape()
    effort = config.choice("effort", ("low", "medium", "high", "xhigh", "max"))
    form = config.fields("format")
    config.close()
    return effort, AnswerShape() if form is None else shape_of(form, nested=False)


def _refuse_edits(fields: RequestFields) -> None:
    """Refuses edits of the conversation, except of reasoning, which is left to the template."""
    management = fields.fields("context_management")
    if management is None:
        return
    for edit in management.each("edits"):
        kind = edit.required_text("type")
        if not kind.startswith("clear_thinking_"):
            edit.fail("type", f"'{kind[:40]}' cannot be honoured: sharpi edits no conversations")
    management.close()


def _without_prefill(messages: list[Message]) -> tuple[list[Message], str]:
    """Separates a last assistant message, which is the beginning of the answer."""
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        return messages, ""
    return messages[:-1], last["content"]
