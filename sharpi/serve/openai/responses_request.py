"""Translates the body of /v1/responses, and its input items, to a ChatCall."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sharpi.dialogue.history import last_answer
from sharpi.serve.chat.chat_call import (
    AnswerShape,
    ChatCall,
    Message,
    call_message,
)
from sharpi.serve.chat.generation_body import (
    answer_shape,
    first_limit,
    generation_of,
    left_out,
    shape_of,
    thinking_of,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.openai.bodies import InputItem, ResponsesBody, text_of
from sharpi.serve.openai.chat_request import CUSTOM_ARGUMENT, offered_tools
from sharpi.settings import SamplingParams


def messages_of(body: ResponsesBody) -> tuple[Message, ...]:
    """Returns the chat messages of a request: its instructions, then its text or input items."""
    messages: list[Message] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return (*messages, {"role": "user", "content": body.input})
    if not body.input:
        raise_invalid("input", "must be a text or a list of items")
    answered = last_answer(each.speaker for each in body.input)
    for index, item in enumerate(body.input):
        is_new = index > answered and item.role == "user"
        _add(messages, item, f"input[{index}].content" if is_new else None)
    return tuple(messages)


def _add(messages: list[Message], item: InputItem, refuses: str | None) -> None:
    """Adds an item of a known type; `refuses` is the path of a content without pictures."""
    match item.type or "message":
        case "message":
            _add_message(messages, item, refuses)
        case "reasoning":
            _assistant(messages, "reasoning_content", _reasoning(item))
        case "function_call":
            _add_call(messages, item, item.arguments or "{}")
        case "custom_tool_call":
            _add_call(messages, item, json.dumps({CUSTOM_ARGUMENT: item.input or ""}))
        case "function_call_output" | "custom_tool_call_output":
            output = text_of(item.output) or ""
            messages.append({"role": "tool", "tool_call_id": item.call_id or "", "content": output})


def _add_message(messages: list[Message], item: InputItem, refuses: str | None) -> None:
    content, role = text_of(item.content, refuses=refuses) or "", item.role or "user"
    if role == "assistant":
        _assistant(messages, "content", content)
    else:
        messages.append({"role": "system" if role == "developer" else role, "content": content})


def _reasoning(item: InputItem) -> str:
    """Returns the text of a reasoning item, or its summaries if the text is missing."""
    return text_of(item.content) or text_of(item.summary) or ""


def _add_call(messages: list[Message], item: InputItem, arguments: str) -> None:
    call = call_message(item.call_id or "", item.name or "", arguments)
    _turn(messages).setdefault("tool_calls", []).append(call)


def _assistant(messages: list[Message], key: str, text: str) -> None:
    """Adds a text under `key` to the last message, if it is the assistant's."""
    turn = _turn(messages)
    if turn.get(key) or turn.get("tool_calls") or (key != "content" and turn.get("content")):
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    if text:
        turn[key] = text


def _turn(messages: list[Message]) -> dict[str, Any]:
    """Returns the last message if it is the assistant's; otherwise adds an empty message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


_LOGPROBS = "message.output_text.logprobs"
# Members of the request that the response repeats, with their defaults.
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
    "user": None,
}


class ResponsesRequest(Struct, frozen=True):
    """The ChatCall of a /v1/responses request, and what its response repeats."""

    call: ChatCall
    echoed: Mapping[str, Any]  # members of the request that the response repeats
    custom: frozenset[str] = frozenset()  # the names of tools that take a text


def responses_request(body: ResponsesBody, host: ModelHost) -> ResponsesRequest:
    """Translates the body to a ResponsesRequest; raises ApiError for contradictory values."""
    limit = first_limit(body.max_output_tokens, body.max_tokens, body.n_predict)
    request = generation_of(body, host, limit, _num_logprobs(body))
    offered = offered_tools(body)
    effort = body.reasoning_effort if body.reasoning is None else body.reasoning.effort
    call = ChatCall(
        messages_of(body),
        request,
        offered.tools,
        offered.choice,
        _shape(body),
        thinking_of(body, effort),
        has_strict_calls=offered.is_strict,
        notes=left_out(offered.left_out),
    )
    return ResponsesRequest(call, _repeated(body, request.sampling), offered.custom)


def _num_logprobs(body: ResponsesBody) -> int | None:
    if _LOGPROBS in (body.include or ()):
        return body.top_logprobs or 0
    return body.top_logprobs


def _shape(body: ResponsesBody) -> AnswerShape:
    if body.text is None or body.text.format is None:
        return answer_shape(body)
    return shape_of(body.text.format, "text.format")


def _repeated(body: ResponsesBody, sampling: SamplingParams) -> Mapping[str, Any]:
    """Returns the fields of the request that a response repeats, and the sampling parameters."""
    given = {name: getattr(body, name) for name in _REPEATED}
    repeated = {
        name: _REPEATED[name] if value is None else msgspec.to_builtins(value)
        for name, value in given.items()
    }
    repeated["tools"] = [{"type": "function", "strict": None, **each} for each in repeated["tools"]]
    return repeated | {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "background": False,
    }
