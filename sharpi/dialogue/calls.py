"""Calls: the tools a model may call, and the number that each of its calls gets."""

from collections.abc import Sequence

from sharpi.dialogue.events import CallArguments, CallBegin
from sharpi.dialogue.tools import Tool


class Calls:
    """Those of one answer."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.count = 0

    def begin(self, name: str) -> CallBegin:
        """The next call."""
        self.count += 1
        return CallBegin(self.count - 1, name)

    def arguments(self, text: str) -> CallArguments:
        """Some of the newest call's arguments."""
        return CallArguments(self.count - 1, text)
