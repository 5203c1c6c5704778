"""AnswerParser converts the streamed text of an answer into events, spaced by Spacing."""

from collections.abc import Iterator

from sharpi.dialogue.answer_text import (
    AnswerEvent,
    AnswerText,
    CallArguments,
    CallBegin,
    Reasoning,
    Steps,
    Text,
)

_PARAGRAPH = "\n\n"


class AnswerParser:
    """Parses the text of one answer, which arrives in pieces.

    The text of the events does not depend on where the pieces are split. `reading`: the generator
    that consumes `source`.
    """

    def __init__(self, source: AnswerText, reading: Steps[None]) -> None:
        self._source, self._reading = source, reading
        self._spacing = Spacing()

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        """Yields the events of added text, to be exhausted; holds back what may begin a marker."""
        self._source.append(text)
        yield from self._read()

    def flush(self, is_whole: bool = False) -> Iterator[AnswerEvent]:
        """Ends the answer and yields the events of the text that was held back.

        `is_whole`: the model ended it, so brackets that are missing will not come.
        """
        self._source.is_ended, self._source.is_whole = True, is_whole
        yield from self._read()
        yield from self._spacing.flush()

    def _read(self) -> Iterator[AnswerEvent]:
        for event in self._reading:
            if event is None:
                return
            yield from self._spacing.feed(event)


class Spacing:
    """Filters events: drops white space around reasoning, and between text and calls.

    Text that continues after reasoning or a call begins a new paragraph. An answer without
    reasoning and calls is left unchanged.
    """

    def __init__(self) -> None:
        self._last: type[Text] | type[Reasoning] | None = None
        self._is_apart = False  # True after an event of another kind
        self._shown: set[type[Text] | type[Reasoning]] = set()
        self._held = ""

    def feed(self, event: AnswerEvent) -> Iterator[AnswerEvent]:
        """Yields the event without trailing white space, which is held back until more text."""
        if isinstance(event, CallArguments):
            yield event
        elif isinstance(event, CallBegin):
            self._is_apart, self._held = True, ""
            yield event
        else:
            yield from self._feed_text(event)

    def flush(self) -> Iterator[AnswerEvent]:
        """Yields the white space held back at the end of text; drops it at the end of reasoning."""
        if self._last is not Reasoning and self._held:
            yield Text(self._held)
        self._held = ""

    def _feed_text(self, event: Text | Reasoning) -> Iterator[AnswerEvent]:
        kind = type(event)
        text = self._joined(event)
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            self._last, self._is_apart = kind, False
            self._shown.add(kind)
            yield kind(shown)
        elif kind is Reasoning and self._last is None:
            self._is_apart = True

    def _joined(self, event: Text | Reasoning) -> str:
        """Returns the event's text, with a leading separator from earlier text if needed."""
        kind = type(event)
        goes_on = self._last is kind or (self._last is None and kind is Text)
        if goes_on and not self._is_apart:
            return self._held + event.text
        text = event.text.lstrip()
        return _PARAGRAPH + text if text and kind in self._shown else text
