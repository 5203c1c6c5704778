"""Marks a model's reasoning in the answer on a terminal; elsewhere the text is unchanged.

The reasoning is dimmed, and an empty line follows it. On a terminal without escape codes, headings
precede the reasoning and the answer.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sharpi.cli.output.terminal import DIM, NORMAL, supports_styles

if TYPE_CHECKING:
    from sharpi.dialogue.formats.harmony import ChannelSplitter
    from sharpi.tokenizer.reasoning import ReasoningDelta, ReasoningSplitter

_GAP = 2  # newlines between the reasoning and the answer
_HEADINGS = ("Reasoning:\n", "Answer:\n")


class ReasoningStyle:
    """Adds escape codes or headings to streamed text, and hides the markers of reasoning.

    `prompt` is the text before the answer, because some chat templates end it with the marker that
    begins the reasoning.
    """

    def __init__(self, prompt: str) -> None:
        self._splitter = reasoning_splitter(prompt) if sys.stdout.isatty() else None
        self._is_dim = supports_styles(sys.stdout)
        self._kind = ""  # kind of the text printed last
        self._num_newlines = 0  # newlines at the end of the reasoning

    def feed(self, text: str) -> str:
        """Returns the text to print now; holds back text that may begin a reasoning marker."""
        return text if self._splitter is None else self._styled(self._splitter.feed(text))

    def end(self) -> str:
        """Returns the text that `feed` held back."""
        return "" if self._splitter is None else self._styled(self._splitter.flush())

    def _styled(self, pieces: Iterable["ReasoningDelta"]) -> str:
        return "".join(part for kind, text in pieces for part in self._parts(kind, text))

    def _parts(self, kind: str, text: str) -> Iterator[str]:
        if kind == "reasoning":
            if self._kind == "" and not self._is_dim:
                yield _HEADINGS[0]
            stripped = text.rstrip("\n")
            self._num_newlines = len(text) - len(stripped) + (0 if stripped else self._num_newlines)
            yield f"{DIM}{text}{NORMAL}" if self._is_dim else text
        elif self._kind == "reasoning":
            text = text.lstrip("\n")
            if not text:
                return
            yield "\n" * max(0, _GAP - self._num_newlines)
            yield text if self._is_dim else _HEADINGS[1] + text
        else:
            yield text
        self._kind = kind


def reasoning_of(answer: str, prompt: str) -> str:
    """Returns the reasoning in an answer to `prompt`; empty if it has none."""
    splitter = reasoning_splitter(prompt)
    pieces = [*splitter.feed(answer), *splitter.flush()]
    return "".join(text for kind, text in pieces if kind == "reasoning")


def reasoning_splitter(prompt: str) -> "ReasoningSplitter | ChannelSplitter":
    """Returns a splitter that separates the reasoning from the rest of the answer to `prompt`."""
    from sharpi.dialogue.formats.harmony import ChannelSplitter, opens_channels
    from sharpi.tokenizer.reasoning import ReasoningSplitter, opens_reasoning

    if opens_channels(prompt):
        return ChannelSplitter()
    return ReasoningSplitter(starts_inside=opens_reasoning(prompt))
