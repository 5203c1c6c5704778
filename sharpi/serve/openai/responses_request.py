"""Translates the body of /v1/responses to a ChatCall."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sharpi.config import SamplingParams
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of, thinking_of
from sharpi.serve.chat.shape_body import shape_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body_faults import raise_invalid
from sharpi.serve.openai.response_input import messages_of
from sharpi.serve.openai.responses_body import ResponsesBody
from sharpi.serve.openai.tools import choice_of, has_strict_tool, tools_of

_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")
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
    """The ChatCall of a /v1/responses request, and how its answer is sent."""

    call: ChatCall
    is_stream: bool
    echoed: Mapping[str, Any]  # members of the request that the response repeats


def responses_request(body: ResponsesBody, host: ModelHost) -> ResponsesRequest:
    """Translates the body to a ResponsesRequest; raises ApiError for contradictory values."""
    limit = first_limit(body.max_output_tokens, body.max_tokens, body.n_predict)
    request = generation_of(body, host, limit, _num_logprobs(body))
    messages = messages_of(body)
    choice, tools = choice_of(body.tool_choice, body.parallel_tool_calls, tools_of(body.tools))
    effort = body.reasoning_effort if body.reasoning is None else body.reasoning.effort
    thinking = thinking_of(body, effort)
    call = ChatCall(
        messages,
        request,
        tools,
        choice,
        _shape(body),
        thinking.is_enabled,
        thinking.budget,
        thinking.template_values,
        has_strict_calls=has_strict_tool(body.tools),
    )
    return ResponsesRequest(call, body.stream or False, _repeated(body, request.sampling))


def _num_logprobs(body: ResponsesBody) -> int | None:
    for each in body.include or ():
        if each not in _INCLUDED:
            raise_invalid("include", f"cannot be honoured: '{each[:60]}'")
    if _LOGPROBS in (body.include or ()):
        return body.top_logprobs or 0
    return body.top_logprobs


def _shape(body: ResponsesBody) -> AnswerShape:
    if body.text is None or body.text.format is None:
        return answer_shape(body)
    return shape_of(body.text.format, "text.format", nested=False)


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
