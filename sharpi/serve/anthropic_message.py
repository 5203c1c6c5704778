"""WholeMessage: the message that the events of an answer add up to."""

import json
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]


class WholeMessage:
    """`message` is as far as `take` was given events."""

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
    """The object; an answer that was cut off in its middle has none that could be read."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}
