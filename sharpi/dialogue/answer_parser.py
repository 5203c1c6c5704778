"""AnswerParser: an answer's text to its events, while it streams."""

from collections.abc import Iterator

from sharpi.dialogue.answer_text import AnswerText, Steps
from sharpi.dialogue.events import AnswerEvent
from sharpi.dialogue.spacing import Spacing


class AnswerParser:
    """Feed pieces of one answer, get events; where the pieces are cut makes no difference.

    `reading` consumes `source`.
    """

    def __init__(self, source: AnswerText, reading: Steps[None]) -> None:
        self._source, self._reading = source, reading
        self._spacing = Spacing()

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        """What is certain now; a possible marker waits. To be consumed to its end."""
        self._source.append(text)
        yield from self._read()

    def flush(self) -> Iterator[AnswerEvent]:
        """What waited, once the answer has ended."""
        self._source.is_ended = True
        yield from self._read()
        yield from self._spacing.flush()

    def _read(self) -> Iterator[AnswerEvent]:
        for event in self._reading:
            if event is None:
                return
            yield from self._spacing.feed(event)
