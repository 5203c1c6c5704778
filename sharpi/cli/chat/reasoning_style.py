"""A model's reasoning, dimmed on its way to a terminal; elsewhere the text stays as it is."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sharpi.cli.output.terminal import DIM, NORMAL, styled

if TYPE_CHECKING:
    from sharpi.dialogue.channel_splitter import ChannelSplitter
    from sharpi.tokenizer.reasoning import ReasoningDelta, ReasoningSplitter


class ReasoningStyle:
    """Pieces in, the same pieces with escape codes out; the markers of reasoning are not shown.

    `prompt` is the text before the answer: some templates open the reasoning themselves.
    """

    def __init__(self, prompt: str) -> None:
        self._splitter = _splitter(prompt) if styled(sys.stdout) else None

    def feed(self, text: str) -> str:
        """What to print of `text` now; a possible marker waits."""
        return text if self._splitter is None else _dimmed(self._splitter.feed(text))

    def end(self) -> str:
        """What waited to the end."""
        return "" if self._splitter is None else _dimmed(self._splitter.flush())


def _splitter(prompt: str) -> "ReasoningSplitter | ChannelSplitter":
    from sharpi.dialogue.channel_splitter import ChannelSplitter, opens_channels
    from sharpi.tokenizer.reasoning import ReasoningSplitter, opens_reasoning

    if opens_channels(prompt):
        return ChannelSplitter()
    return ReasoningSplitter(starts_inside=opens_reasoning(prompt))


def _dimmed(pieces: Iterable["ReasoningDelta"]) -> str:
    return "".join(f"{DIM}{text}{NORMAL}" if kind == "reasoning" else text for kind, text in pieces)
