"""Reads the body of /v1/responses into a ChatCall."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sharpi.serve.chat.chat_call import AnswerShape, ChatCall
from sharpi.serve.chat.common_fields import read_model, shape_of
from sharpi.serve.chat.thinking_fields import read_thinking
from sharpi.serve.chat.tool_fields import wants_strict_calls
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields
from sharpi.serve.openai.fields import MAX_LOGPROBS, read_generation, read_max_tokens, read_shape
from sharpi.serve.openai.response_input import read_input
from sharpi.serve.openai.tools import read_choice, read_tools

_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")
# Fields of the request that the response repeats, with their defaults.
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
_NOTHING_KEPT = "sharpi keeps no answers; send the conversation"


class ResponsesRequest(Struct, frozen=True):
    """A call and the way to send its answer."""

    call: ChatCall
    is_stream: bool
    echoed: Mapping[str, Any]  # fields of the request that the response repeats


def read_responses(body: object, host: ModelHost) -> ResponsesRequest:
    """Reads a body; raises ApiError if it is malformed, or has unknown or unsupported fields."""
    fields = RequestFields(body)
    read_model(fields, host)
    _refuse_unsupported(fields)
    messages = read_input(fields)
    choice, tools = read_choice(fields, read_tools(fields, nested=False), nested=False)
    max_tokens = read_max_tokens(fields, "max_output_tokens")
    thinking = read_thinking(fields, _effort(fields))
    call = ChatCall(
        messages,
        read_generation(fields, host, max_tokens, _num_logprobs(fields)),
        tools,
        choice,
        _shape(fields),
        thinking.is_enabled,
        thinking.budget,
        thinking.template_values,
        has_strict_calls=wants_strict_calls(fields),
    )
    is_stream = fields.flag("stream") or False
    echoed = {name: _said(fields.raw(name), otherwise) for name, otherwise in _ECHOED.items()}
    fields.close()
    return ResponsesRequest(call, is_stream, echoed)


def _refuse_unsupported(fields: RequestFields) -> None:
    fields.ignore("stream_options", "max_tool_calls", "client_metadata")
    fields.only("store", (False,), _NOTHING_KEPT)
    fields.only("background", (False,), _NOTHING_KEPT)
    fields.only("previous_response_id", (), _NOTHING_KEPT)
    fields.only("conversation", (), _NOTHING_KEPT)
    fields.only("prompt", (), "sharpi keeps no prompts")
    fields.only("truncation", ("disabled",), "input that is too long is refused")
    fields.only("context_management", ([],), "sharpi edits no conversations")
    fields.only("moderation", (), "sharpi does not moderate")


def _num_logprobs(fields: RequestFields) -> int | None:
    included = fields.texts("include", 16)
    for each in included:
        if each not in _INCLUDED:
            fields.fail("include", f"cannot be honoured: '{each[:60]}'")
    num_best = fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    return (num_best or 0) if _LOGPROBS in included else num_best


def _effort(fields: RequestFields) -> str | None:
    """Reads the effort; summaries are ignored, since responses contain the reasoning itself."""
    reasoning = fields.fields("reasoning")
    if reasoning is None:
        return None
    reasoning.ignore("summary", "generate_summary", "context")
    reasoning.only("mode", ("standard",), "there is one mode")
    effort = reasoning.text("effort")
    reasoning.close()
    return effort


def _shape(fields: RequestFields) -> AnswerShape:
    text = fields.fields("text")
    form = None if text is None else text.fields("format")
    if text is not None:
        text.ignore("verbosity")
        text.close()
    return read_shape(fields) if form is None else shape_of(form, nested=False)


def _said(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
