"""Reads the body of /v1/chat/completions into a ChatCall."""

from typing import Any

from msgspec import Struct

from sharpi.serve.chat.chat_call import ChatCall, Message
from sharpi.serve.chat.common_fields import read_model
from sharpi.serve.chat.thinking_fields import read_thinking
from sharpi.serve.chat.tool_fields import wants_strict_calls
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields
from sharpi.serve.openai.fields import (
    MAX_ANSWERS,
    MAX_LOGPROBS,
    read_generation,
    read_include_usage,
    read_max_tokens,
    read_shape,
)
from sharpi.serve.openai.messages import read_messages
from sharpi.serve.openai.tools import read_choice, read_tools


class ChatRequest(Struct, frozen=True):
    """A call and the way to send its answer."""

    call: ChatCall
    is_stream: bool
    includes_usage: bool  # a stream ends with its usage


def read_chat(body: object, host: ModelHost) -> ChatRequest:
    """Reads a body; raises ApiError if it is malformed, or has unknown or unsupported fields."""
    fields = RequestFields(body)
    read_model(fields, host)
    _refuse_unsupported(fields)
    messages, prefill = _messages_and_prefill(fields)
    choice, tools = read_choice(fields, read_tools(fields, nested=True), nested=True)
    max_tokens = read_max_tokens(fields, "max_completion_tokens", "max_tokens")
    thinking = read_thinking(fields, fields.text("reasoning_effort"))
    call = ChatCall(
        messages,
        read_generation(fields, host, max_tokens, _num_logprobs(fields)),
        tools,
        choice,
        read_shape(fields),
        thinking.is_enabled,
        thinking.budget,
        thinking.template_values,
        prefill,
        fields.integer("n", 1, MAX_ANSWERS) or 1,
        wants_strict_calls(fields),
    )
    is_stream, includes_usage = fields.flag("stream") or False, read_include_usage(fields)
    fields.close()
    return ChatRequest(call, is_stream, includes_usage)


def _refuse_unsupported(fields: RequestFields) -> None:
    fields.ignore("prediction", "verbosity")
    fields.only("modalities", (["text"],), "the model writes text only")
    fields.only("audio", (), "the model writes text only")
    fields.only("store", (False,), "sharpi keeps no answers")
    fields.only("web_search_options", (), "sharpi does not search the web")
    fields.only("moderation", (), "sharpi does not moderate")
    fields.only("functions", ([],), "use 'tools'")
    fields.only("function_call", ("none", "auto"), "use 'tool_choice'")


def _num_logprobs(fields: RequestFields) -> int | None:
    num_best = fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    if fields.flag("logprobs"):
        return num_best or 0
    if num_best:
        fields.fail("top_logprobs", "needs 'logprobs': true")
    return None


def _messages_and_prefill(fields: RequestFields) -> tuple[tuple[Message, ...], str]:
    """Returns the messages, and the last one as prefill with "continue_final_message"."""
    messages = read_messages(fields)
    continues = fields.flag("continue_final_message")
    fields.only("add_generation_prompt", (not continues,), "it goes with 'continue_final_message'")
    if not continues:
        return messages, ""
    last: dict[str, Any] = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        fields.fail("continue_final_message", "needs an assistant's text as the last message")
    return messages[:-1], last["content"]
