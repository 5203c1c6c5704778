"""AnswerParser turns an answer's text into events while it streams."""

from collections.abc import Iterator

from sharpi.dialogue.answer_text import AnswerText, Steps
from sharpi.dialogue.events import AnswerEvent
from sharpi.dialogue.spacing import Spacing


class AnswerParser:
    """Parses the pieces of one answer; the events do not depend on where the pieces are split.

    `reading` is the generator that consumes `source`.
    """

    def __init__(self, source: AnswerText, reading: Steps[None]) -> None:
        self._source, self._reading = source, reading
        self._spacing = Spacing()

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        """Yields the events that are decided.

        A possible marker waits. The caller must exhaust the generator.
        """
        self._source.append(text)
        yield from self._read()

    def flush(self) -> Iterator[AnswerEvent]:
        """Yields the events that waited, once the answer has ended."""
        self._source.is_ended = True
        yield from self._read()
        yield from self._spacing.flush()

    def _read(self) -> Iterator[AnswerEvent]:
        for event in self._reading:
            if event is None:
                return
            yield from self._spacing.feed(event)
