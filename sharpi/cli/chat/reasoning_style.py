"""Dims a model's reasoning on a terminal; elsewhere the text is unchanged."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sharpi.cli.output.terminal import DIM, NORMAL, styled

if TYPE_CHECKING:
    from sharpi.dialogue.channel_splitter import ChannelSplitter
    from sharpi.tokenizer.reasoning import ReasoningDelta, ReasoningSplitter


class ReasoningStyle:
    """Adds escape codes to streamed text and hides the markers of reasoning.

    `prompt` is the text before the answer, since some templates open the reasoning themselves.
    """

    def __init__(self, prompt: str) -> None:
        self._splitter = _splitter(prompt) if styled(sys.stdout) else None

    def feed(self, text: str) -> str:
        """Returns the text to print now; a possible marker waits."""
        return text if self._splitter is None else _dimmed(self._splitter.feed(text))

    def end(self) -> str:
        """Returns the text that waited."""
        return "" if self._splitter is None else _dimmed(self._splitter.flush())


def _splitter(prompt: str) -> "ReasoningSplitter | ChannelSplitter":
    from sharpi.dialogue.channel_splitter import ChannelSplitter, opens_channels
    from sharpi.tokenizer.reasoning import ReasoningSplitter, opens_reasoning

    if opens_channels(prompt):
        return ChannelSplitter()
    return ReasoningSplitter(starts_inside=opens_reasoning(prompt))


def _dimmed(pieces: Iterable["ReasoningDelta"]) -> str:
    return "".join(f"{DIM}{text}{NORMAL}" if kind == "reasoning" else text for kind, text in pieces)
