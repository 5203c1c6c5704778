"""Translates the body of /v1/chat/completions to a ChatCall."""

import json
from collections.abc import Sequence
from typing import Any

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.chat.chat_call import (
    ChatCall,
    Message,
    call_message,
    last_answer,
    left_out,
)
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of, thinking_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.openai.bodies import CallBody, ChatBody, MessageBody, text_of
from sharpi.serve.openai.tools import OfferedTools, choice_of, tools_of

_SAME_ROLES = {"developer": "system", "function": "tool"}


def chat_call(body: ChatBody, host: ModelHost) -> ChatCall:
    """Translates the body to a ChatCall; raises ApiError for contradictory values."""
    limit = first_limit(body.max_completion_tokens, body.max_tokens, body.n_predict)
    request = generation_of(body, host, limit, _num_logprobs(body))
    messages, prefill = _messages_and_prefill(body)
    offered, choice = OfferedTools(), ToolChoice()
    tools: tuple[Tool, ...] = ()
    if body.tools or body.tool_choice is not None:
        offered = tools_of(body.tools)
        choice, tools = choice_of(body.tool_choice, body.parallel_tool_calls, offered.tools)
    return ChatCall(
        messages,
        request,
        tools,
        choice,
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
    """Returns the messages, and the beginning of the answer that the model continues.

    With "continue_final_message" that is the text of the last message, otherwise "".
    """
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
    answered = last_answer(each.role for each in bodies)
    return tuple(
        _message(each, f"messages[{i}].content" if i > answered and each.role == "user" else None)
        for i, each in enumerate(bodies)
    )


def _message(body: MessageBody, refuses: str | None) -> Message:
    """Converts one message for a ChatCall; the role "developer" becomes "system"."""
    message: Message = {"role": _SAME_ROLES.get(body.role, body.role)}
    if body.role == "assistant":
        message |= _assistant(body)
    if body.role in ("tool", "function") and body.tool_call_id:
        message["tool_call_id"] = body.tool_call_id
    content = body.content
    if not isinstance(content, str):
        content = text_of(content, refuses=refuses) or ""
    return message | {"content": content} | ({"name": body.name} if body.name else {})


def _assistant(body: MessageBody) -> Message:
    """Returns the fields of an assistant message that hold its reasoning and tool calls.

    The reasoning may be in `reasoning_content` or `reasoning`.
    """
    reasoning = body.reasoning_content or body.reasoning
    message: Message = {"reasoning_content": reasoning} if reasoning else {}
    calls = [_call(each) for each in body.tool_calls or ()]
    return message | ({"tool_calls": calls} if calls else {})


def _call(body: CallBody) -> dict[str, Any]:
    arguments = body.function.arguments or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return call_message(body.id or "", body.function.name, arguments)
