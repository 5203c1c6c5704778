"""MessageEvents turns an answer into events of Anthropic's API, and MessageBuilder joins them."""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from sharpi.dialogue.answer_text import AnswerEvent, CallArguments, CallBegin, Reasoning, Text
from sharpi.serve.chat.answer_reading import answer_events, answers, new_id
from sharpi.serve.chat.chat_call import (
    AnswerDeltaOrEnd,
    AnswerEnd,
    EndReason,
    PromptRequest,
    Usage,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.event_stream import Events, named_event

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


class MessageBuilder:
    """Builds the message of an answer that is not streamed, from its stream events."""

    def __init__(self) -> None:
        self.message: Event = {}
        self._pieces: list[str] = []

    def take(self, event: Event) -> None:
        """Adds an event to the message."""
        match event["type"]:
            case "message_start":
                self.message = event["message"]
            case "content_block_start":
                self.message["content"].append(event["content_block"])
                self._pieces = []
            case "content_block_delta":
                self._take_delta(event["delta"])
            case "content_block_stop":
                self._finish(self.message["content"][-1])
            case "message_delta":
                self.message |= event["delta"] | {"usage": event["usage"]}

    def _take_delta(self, delta: Event) -> None:
        if delta["type"] == "signature_delta":
            self.message["content"][-1]["signature"] = delta["signature"]
        else:
            self._pieces.append(delta.get("text") or delta.get("thinking") or delta["partial_json"])

    def _finish(self, block: Event) -> None:
        text = "".join(self._pieces)
        match block["type"]:
            case "tool_use":
                block["input"] = _arguments(text)
            case "thinking":
                block["thinking"] = text
            case _:
                block["text"] = text


def _arguments(text: str) -> object:
    """Parses a tool call's arguments; returns an empty object if the answer cut them off."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}


def message_events(host: ModelHost, prompt_request: PromptRequest, shows_thinking: bool) -> Events:
    """Returns the server-sent events of a streamed answer."""
    writer = MessageEvents(host.model_id, len(prompt_request.prompt_ids), shows_thinking)
    return answer_events(
        host, [prompt_request], lambda _, item: map(named_event, writer.of(item)), _PING
    )


async def whole_message(
    host: ModelHost, prompt_request: PromptRequest, shows_thinking: bool
) -> Event:
    """Generates an answer that is not streamed, and returns its message."""
    writer = MessageEvents(host.model_id, len(prompt_request.prompt_ids), shows_thinking)
    builder = MessageBuilder()
    async with answers(host, [prompt_request]) as items:
        async for numbered in items:
            if numbered is not None:
                for event in writer.of(numbered[1]):
                    builder.take(event)
    return builder.message


class MessageEvents:
    """Converts the parts of an answer to stream events, in blocks of one type each."""

    def __init__(self, model_id: str, num_prompt: int, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._open: str | None = None
        self._index = -1
        self._has_begun = False
        self._message: Event = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": model_id,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": num_prompt, "output_tokens": 0},
        }

    def of(self, item: AnswerDeltaOrEnd) -> Iterator[Event]:
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
        """Yields the events that close the open block, and open a block of type `kind`.

        Yields nothing if the open block has that type already. `empty` is the new block's content.
        """
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
        delta = {"stop_reason": _STOP_REASONS[end.reason], "stop_sequence": end.stop}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(end.usage)}
        yield {"type": "message_stop"}


def _usage(usage: Usage) -> Event:
    """Returns the usage object; "input_tokens" excludes prompt tokens found in the KV cache."""
    return {
        "input_tokens": usage.num_prompt - usage.num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.num_cached,
        "output_tokens": usage.num_generated,
        "output_tokens_details": {"thinking_tokens": usage.num_reasoning},
    }
