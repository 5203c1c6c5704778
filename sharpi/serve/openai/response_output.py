"""The output items of a response: message, reasoning and function call, with their events."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from sharpi.dialogue.answer_text import CallBegin
from sharpi.serve.chat.answer_reading import new_id
from sharpi.serve.chat.chat_call import AnswerDelta
from sharpi.serve.chat.logprobs import listed_logprobs
from sharpi.serve.openai.tools import CUSTOM_ARGUMENT
from sharpi.tokenizer.tokenizer import Tokenizer

Event = dict[str, Any]


class Item(ABC):
    """The output item `index` of a response; its `body` is complete after `end`."""

    def __init__(self, index: int, tokenizer: Tokenizer, body: Event) -> None:
        self._index, self._tokenizer = index, tokenizer
        self.body = body | {"status": "in_progress"}
        self._pieces: list[str] = []

    def begin(self) -> Iterator[Event]:
        """Yields the events that announce the item."""
        item = {"type": "response.output_item.added", "item": dict(self.body)}
        yield item | {"output_index": self._index}

    @abstractmethod
    def add(self, part: AnswerDelta) -> Iterator[Event]:
        """Yields the delta events for one more part of the answer."""

    @abstractmethod
    def contents_end(self, text: str) -> Iterator[Event]:
        """Stores the complete text in `body`, and yields the events that report it."""

    def end(self, status: str) -> Iterator[Event]:
        """Yields the events that end the item, which then has `status`."""
        yield from self.contents_end("".join(self._pieces))
        self.body["status"] = status
        item = {"type": "response.output_item.done", "item": self.body}
        yield item | {"output_index": self._index}

    def _event(self, kind: str, **values: Any) -> Event:
        place = {"item_id": self.body["id"], "output_index": self._index}
        return {"type": f"response.{kind}", **place, **values}

    def _piece(self, part: AnswerDelta) -> str:
        text = "" if isinstance(part.event, CallBegin) else part.event.text
        self._pieces.append(text)
        return text


class _TextItem(Item):
    """An output item with one text as content; `events` is the prefix of its events' names."""

    events: ClassVar[str]
    empty: ClassVar[Event]

    def begin(self) -> Iterator[Event]:
        yield from super().begin()
        yield self._event("content_part.added", content_index=0, part=dict(self.empty))

    def contents_end(self, text: str) -> Iterator[Event]:
        part = self.empty | {"text": text} | self.extra()
        self.body["content"] = [part]
        yield self._event(f"{self.events}.done", content_index=0, text=text, **self.extra())
        yield self._event("content_part.done", content_index=0, part=part)

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        text, extra = self._piece(part), self.extra(part)
        yield self._event(f"{self.events}.delta", content_index=0, delta=text, **extra)

    def extra(self, part: AnswerDelta | None = None) -> Event:
        """Returns further fields for the delta event of `part`.

        If `part` is None, returns further fields for the events of the complete text.
        """
        return {}


class MessageItem(_TextItem):
    """The output item with the answer's text, and its logprobs if they were requested."""

    events = "output_text"
    empty: ClassVar[Event] = {
        "type": "output_text",
        "text": "",
        "annotations": [],
        "logprobs": [],
    }

    def __init__(self, index: int, tokenizer: Tokenizer) -> None:
        body = {"id": new_id("msg_"), "type": "message", "role": "assistant", "content": []}
        super().__init__(index, tokenizer, body)
        self._logprobs: list[Event] = []

    def extra(self, part: AnswerDelta | None = None) -> Event:
        if part is None:
            return {"logprobs": self._logprobs}
        tokens = [token for token in part.tokens if token.logprob is not None]
        logprobs = listed_logprobs(self._tokenizer, tokens)
        self._logprobs += logprobs
        return {"logprobs": logprobs}


class ReasoningItem(_TextItem):
    """The output item with the reasoning before the answer."""

    events = "reasoning_text"
    empty: ClassVar[Event] = {"type": "reasoning_text", "text": ""}

    def __init__(self, index: int, tokenizer: Tokenizer) -> None:
        body = {"id": new_id("rs_"), "type": "reasoning", "summary": [], "content": []}
        super().__init__(index, tokenizer, body)


class CallItem(Item):
    """The output item with a function call."""

    def __init__(self, index: int, tokenizer: Tokenizer, name: str) -> None:
        call = {"type": "function_call", "call_id": new_id("call_"), "name": name}
        super().__init__(index, tokenizer, {"id": new_id("fc_"), **call, "arguments": ""})

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        yield self._event("function_call_arguments.delta", delta=self._piece(part))

    def contents_end(self, text: str) -> Iterator[Event]:
        self.body["arguments"] = text or "{}"
        done = {"arguments": self.body["arguments"], "name": self.body["name"]}
        yield self._event("function_call_arguments.done", **done)


class CustomCallItem(Item):
    """The output item with a call of a custom tool, whose text is an argument of a function."""

    def __init__(self, index: int, tokenizer: Tokenizer, name: str) -> None:
        call = {"type": "custom_tool_call", "call_id": new_id("call_"), "name": name}
        super().__init__(index, tokenizer, {"id": new_id("ctc_"), **call, "input": ""})

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        self._piece(part)
        return iter(())

    def contents_end(self, text: str) -> Iterator[Event]:
        self.body["input"] = _custom_text(text)
        yield self._event("custom_tool_call_input.delta", delta=self.body["input"])
        yield self._event("custom_tool_call_input.done", input=self.body["input"])


def _custom_text(arguments: str) -> str:
    """Returns the text in a custom tool's arguments; the arguments as they are if it has none."""
    try:
        return str(json.loads(arguments)[CUSTOM_ARGUMENT])
    except (ValueError, KeyError, TypeError):
        return arguments
