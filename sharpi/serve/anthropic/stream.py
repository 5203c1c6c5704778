"""Anthropic's API: its endpoints, and an answer as a message or as the events of a stream."""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.dialogue.answer_text import AnswerEvent, CallArguments, CallBegin, Reasoning, Text
from sharpi.serve.anthropic.bodies import CountBody, MessagesBody
from sharpi.serve.anthropic.request import counted_call, messages_call
from sharpi.serve.chat.answer_reading import Block, answer_events, collect, new_id
from sharpi.serve.chat.chat_call import AnswerDeltaOrEnd, AnswerEnd, EndReason, Usage
from sharpi.serve.chat.chat_model import Answering, ChatModel, ChatModels, answer_endpoint
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint, Events, named_event, prepared
from sharpi.serve.http.errors import ApiError, anthropic_body

_STOP_REASONS: dict[EndReason, str] = {
    "stop": "end_turn",
    "stop_string": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "calls": "tool_use",
}
# Clients send the signature back with the block; sharpi does not verify it.
_SIGNATURE = "sharpi"
_PING = named_event({"type": "ping"})
Event: TypeAlias = dict[str, Any]


class Messages(Answering):
    """Answers a conversation with the next message."""

    def __init__(self, body: MessagesBody, model: ChatModel, host: ModelHost) -> None:
        call, self._shows_thinking = messages_call(body, host)
        requests = model.prompt_requests(call)
        super().__init__(host, requests, is_stream=body.stream, notes=call.notes)
        self._open: str | None = None  # the type of the block that the stream has begun
        self._index = -1
        self._has_begun = False
        self._message: Event = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": host.model_id,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": len(requests[0].prompt_ids), "output_tokens": 0},
        }

    def events(self) -> Events:
        return answer_events(
            self.host, self.prompt_requests, lambda _, item: map(named_event, self._of(item)), _PING
        )

    async def whole(self) -> Event:
        [collected] = await collect(self.host, self.prompt_requests)
        assert collected.end is not None
        content = [self._block(each) for each in collected.blocks]
        usage = {"usage": _usage(collected.end.usage)}
        return self._message | {"content": content} | _stop(collected.end) | usage

    def error_event(self, error: ApiError) -> bytes:
        return named_event(anthropic_body(error))

    def _block(self, block: Block) -> Event:
        match block.kind:
            case "text":
                return {"type": "text", "text": block.text}
            case "reasoning":
                text = block.text if self._shows_thinking else ""
                return {"type": "thinking", "thinking": text, "signature": _SIGNATURE}
        call = {"type": "tool_use", "id": new_id("toolu_"), "name": block.name}
        return call | {"input": _arguments(block.text)}

    def _of(self, item: AnswerDeltaOrEnd) -> Iterator[Event]:
        """Yields the stream events for one part of the answer, or for its end."""
        if not self._has_begun:
            self._has_begun = True
            yield {"type": "message_start", "message": self._message}
        if isinstance(item, AnswerEnd):
            yield from self._end(item)
        else:
            yield from self._part(item.event)

    def _part(self, event: AnswerEvent) -> Iterator[Event]:
        match event:
            case Text(text) if text:
                yield from self._in_block("text", {"text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case Reasoning(text) if text:
                yield from self._in_block("thinking", {"thinking": "", "signature": ""})
                if self._shows_thinking:
                    yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallBegin(_, name):
                yield from self._close()
                call = {"id": new_id("toolu_"), "name": name, "input": {}}
                yield from self._in_block("tool_use", call)
            case CallArguments(_, text) if text:
                yield self._delta({"type": "input_json_delta", "partial_json": text})

    def _in_block(self, kind: str, empty: Event) -> Iterator[Event]:
        """Yields the events that close the open block, and open a block of type `kind`."""
        if self._open == kind:
            return
        yield from self._close()
        self._open, self._index = kind, self._index + 1
        block = {"type": kind, **empty}
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Iterator[Event]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        self._open = None
        yield {"type": "content_block_stop", "index": self._index}

    def _delta(self, delta: Event) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _end(self, end: AnswerEnd) -> Iterator[Event]:
        yield from self._close()
        yield {"type": "message_delta", "delta": _stop(end), "usage": _usage(end.usage)}
        yield {"type": "message_stop"}


def _arguments(text: str) -> object:
    """Parses a tool call's arguments; returns an empty object if the answer cut them off."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _stop(end: AnswerEnd) -> Event:
    return {"stop_reason": _STOP_REASONS[end.reason], "stop_sequence": end.stop}


def _usage(usage: Usage) -> Event:
    """Returns the usage object; "input_tokens" excludes prompt tokens found in the KV cache."""
    return {
        "input_tokens": usage.num_prompt - usage.num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.num_cached,
        "output_tokens": usage.num_generated,
        "output_tokens_details": {"thinking_tokens": usage.num_reasoning},
    }


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of Anthropic's API."""

    async def count_tokens(request: Request) -> Response:
        """Counts the tokens of a conversation's prompt."""
        model = await chats.get()

        def count(body: CountBody) -> int:
            return len(model.memory.ids_of(model.prompt(counted_call(body, host))))

        return JSONResponse({"input_tokens": await prepared(request, CountBody, count)})

    messages, other = ("/v1/messages", "/messages"), ("/messages/count_tokens",)
    return [
        answer_endpoint(host, chats, messages, MessagesBody, Messages),
        Endpoint("POST", "/v1/messages/count_tokens", count_tokens, CountBody, other),
    ]
