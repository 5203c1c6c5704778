"""Calls: the tools that a model may call, and the numbers of its calls."""

from collections.abc import Sequence

from sharpi.dialogue.events import CallArguments, CallBegin
from sharpi.dialogue.tools import Tool


class Calls:
    """Numbers the tool calls of one answer."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.count = 0

    def begin(self, name: str) -> CallBegin:
        """Returns the event that begins the next call."""
        self.count += 1
        return CallBegin(self.count - 1, name)

    def arguments(self, text: str) -> CallArguments:
        """Returns the event with more text of the newest call's arguments."""
        return CallArguments(self.count - 1, text)
