"""ReasoningSplitter separates reasoning from the answer for display, while the text streams."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from sharpi.dialogue.answer_parser import AnswerParser
from sharpi.dialogue.answer_text import AnswerEvent, AnswerText, Calls, Reasoning, Text
from sharpi.dialogue.formats.harmony import CHANNEL, TURN, Harmony
from sharpi.dialogue.formats.json_calls import JsonCalls
from sharpi.dialogue.notations import HERMES
from sharpi.tokenizer.reasoning import KNOWN_MARKERS, THINK, opens_reasoning

ReasoningDelta: TypeAlias = tuple[Literal["reasoning", "answer"], str]


class ReasoningSplitter:
    """Splits the answer to `prompt` into reasoning and text, without markers and blanks between."""

    def __init__(self, prompt: str) -> None:
        source, calls = AnswerText(), Calls(())
        begun = next((each for each in KNOWN_MARKERS if opens_reasoning(prompt, each)), None)
        form = Harmony() if prompt.endswith(TURN) else JsonCalls(HERMES)
        reading = form.read_answer(source, calls, begun or THINK, begun is not None)
        self._parser = AnswerParser(source, reading)

    def feed(self, text: str) -> Iterator[ReasoningDelta]:
        """Adds text and yields its deltas; holds back text that may be the start of a marker."""
        return _pieces(self._parser.feed(text))

    def flush(self) -> Iterator[ReasoningDelta]:
        """Ends the answer and yields the deltas of the text that was held back."""
        return _pieces(self._parser.flush())


def _pieces(events: Iterable[AnswerEvent]) -> Iterator[ReasoningDelta]:
    for event in events:
        if isinstance(event, Reasoning):
            yield "reasoning", event.text
        elif isinstance(event, Text):
            yield "answer", event.text


def without_channels(text: str) -> str:
    """Returns gpt-oss's answer without reasoning and markers; other text is unchanged."""
    if CHANNEL not in text:
        return text
    splitter = ReasoningSplitter(TURN)
    pieces = [*splitter.feed(text), *splitter.flush()]
    return "".join(text for kind, text in pieces if kind == "answer").strip()
