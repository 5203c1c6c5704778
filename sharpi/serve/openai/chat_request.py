"""ChatRoute: translates the body of /v1/chat/completions to a ChatCall, and responds to it."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.chat.chat_call import (
    ChatCall,
    Message,
    PromptRequest,
    call_message,
    last_answer,
    left_out,
)
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of, thinking_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import prepared
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.http.event_stream import event_stream
from sharpi.serve.openai.bodies import CallBody, ChatBody, MessageBody, text_of
from sharpi.serve.openai.chat import chat_chunks, chat_completion, error_event
from sharpi.serve.openai.tools import OfferedTools, choice_of, tools_of

_SAME_ROLES = {"developer": "system", "function": "tool"}


class ChatRoute:
    """The handler of /v1/chat/completions."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def respond(self, request: Request) -> Response:
        """Answers a chat with the next message."""
        model = await self._chats.get()

        def prepare(body: ChatBody) -> tuple[ChatRequest, list[PromptRequest]]:
            asked = chat_request(body, self._host)
            return asked, model.prompt_requests(asked.call)

        asked, prompt_requests = await prepared(request, ChatBody, prepare)
        headers = self._host.note((*asked.call.notes, *prompt_requests[0].notes))
        if asked.wants_progress:
            prompt_requests = [replace(each, wants_progress=True) for each in prompt_requests]
        if asked.is_stream:
            chunks = chat_chunks(self._host, prompt_requests, model.tokenizer, asked.includes_usage)
            return await event_stream(chunks, error_event, headers)
        answer = await chat_completion(self._host, prompt_requests, model.tokenizer)
        return JSONResponse(answer, headers=headers)


class ChatRequest(Struct, frozen=True):
    """The ChatCall of a /v1/chat/completions request, and how its answers are sent."""

    call: ChatCall
    is_stream: bool
    includes_usage: bool  # a stream ends with its usage
    wants_progress: bool = False  # a stream begins with the progress of the prompt


def chat_request(body: ChatBody, host: ModelHost) -> ChatRequest:
    """Translates the body to a ChatRequest; raises ApiError for contradictory values."""
    limit = first_limit(body.max_completion_tokens, body.max_tokens, body.n_predict)
    request = generation_of(body, host, limit, _num_logprobs(body))
    messages, prefill = _messages_and_prefill(body)
    offered, choice = OfferedTools(), ToolChoice()
    tools: tuple[Tool, ...] = ()
    if body.tools or body.tool_choice is not None:
        offered = tools_of(body.tools)
        choice, tools = choice_of(body.tool_choice, body.parallel_tool_calls, offered.tools)
    thinking = thinking_of(body, body.reasoning_effort)
    call = ChatCall(
        messages,
        request,
        tools,
        choice,
        answer_shape(body),
        thinking,
        prefill,
        body.n or 1,
        offered.is_strict,
        left_out(offered.left_out),
    )
    includes_usage = body.stream_options is not None and body.stream_options.include_usage
    is_stream = body.stream or False
    wants_progress = is_stream and bool(body.return_progress)
    return ChatRequest(call, is_stream, bool(includes_usage), wants_progress)


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
