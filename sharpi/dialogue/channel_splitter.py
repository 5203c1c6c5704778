"""ChannelSplitter: separates gpt-oss's reasoning from its answer, for display."""

from collections.abc import Iterable, Iterator

from sharpi.dialogue.answer_parser import AnswerParser
from sharpi.dialogue.answer_text import AnswerText, Calls
from sharpi.dialogue.events import AnswerEvent, Reasoning, Text
from sharpi.dialogue.formats.harmony import ANALYSIS, CHANNEL, START, Harmony
from sharpi.tokenizer.reasoning import ReasoningDelta


def opens_channels(prompt: str) -> bool:
    """Returns whether a prompt ends where the model has to choose a channel of the answer."""
    return prompt.endswith(f"{START}assistant")


def without_channels(text: str) -> str:
    """Returns the answer without reasoning and markers; text without channels is unchanged."""
    if CHANNEL not in text:
        return text
    splitter = ChannelSplitter()
    pieces = [*splitter.feed(text), *splitter.flush()]
    return "".join(text for kind, text in pieces if kind == "answer").strip()


class ChannelSplitter:
    """Splits streamed text into reasoning and answer, with an empty line after reasoning.

    It has the interface of ReasoningSplitter.
    """

    def __init__(self) -> None:
        source = AnswerText()
        reading = Harmony().read_answer(source, Calls(()), ANALYSIS, False)
        self._parser = AnswerParser(source, reading)
        self._has_reasoning = False

    def feed(self, text: str) -> Iterator[ReasoningDelta]:
        """Adds text and yields its deltas; holds back text that may be the start of a marker."""
        return self._pieces(self._parser.feed(text))

    def flush(self) -> Iterator[ReasoningDelta]:
        """Ends the answer and yields the deltas of the text that was held back."""
        return self._pieces(self._parser.flush())

    def _pieces(self, events: Iterable[AnswerEvent]) -> Iterator[ReasoningDelta]:
        for event in events:
            if isinstance(event, Reasoning):
                self._has_reasoning = True
                yield "reasoning", event.text
            elif isinstance(event, Text):
                yield "answer", "\n\n" + event.text if self._has_reasoning else event.text
                self._has_reasoning = False
