"""AnswerParser converts the streamed text of an answer into events.

Spacing drops white space between parts of an answer. MarkedAnswer is the base class for formats in
which a marker begins each tool call.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from sharpi.dialogue.answer_text import (
    AnswerEvent,
    AnswerText,
    CallArguments,
    CallBegin,
    Calls,
    Reasoning,
    Steps,
    Text,
)
from sharpi.tokenizer.reasoning import ReasoningMarkers

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
        """Adds text and yields its events; holds back text that may be the start of a marker.

        The caller must exhaust the generator.
        """
        self._source.append(text)
        yield from self._read()

    def flush(self) -> Iterator[AnswerEvent]:
        """Ends the answer and yields the events of the text that was held back."""
        self._source.is_ended = True
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


class MarkedAnswer:
    """Reads reasoning, then text and tool calls.

    `openings`: the markers that may begin a call, in a code block or not; `endings`: those that may
    follow it, and that models repeat. `bare_openings`: what may begin a call after other text.
    """

    openings: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    bare_openings: tuple[str, ...] = ()
    reasoning: ReasoningMarkers | None = None

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        """Reads a call whose opening marker was just read, and yields its events.

        Returns False, without yielding events, if the text is not a call.
        """
        yield from ()
        return False

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        """Reads a call without an opening marker; returns False if the text is not a call."""
        yield from ()
        return False

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields the events of an answer's reasoning, text and calls, until the answer ends.

        A call ends reasoning that the model has not closed.
        """
        openings = _with_fences(self.openings) if calls.tools else ()
        if reasoning is not None:
            yield from self._read_reasoning(source, calls, reasoning, openings, starts_inside)
        if calls.tools and not calls.count:
            start = source.at
            if not (yield from self.read_bare_call(source, calls)):
                source.at = start
        bare = self.bare_openings if calls.tools else ()
        around = reasoning.around_answer if reasoning is not None else ()
        while marker := (yield from source.emit_until((*openings, *bare, *around), Text)):
            if marker in around:
                continue
            start = source.at
            if not (yield from self._read_marked(source, marker, calls, bare)):
                source.at = start
                yield Text(marker)

    def _read_reasoning(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers,
        openings: tuple[str, ...],
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields the events of the reasoning before the answer, which may have several blocks."""
        is_inside = starts_inside
        if is_inside:
            yield Reasoning("")
        markers = (reasoning.opening, reasoning.closing)  # of which the second may come alone
        while True:
            if is_inside and (yield from self._read_block(source, calls, reasoning, openings)):
                return
            start = source.at
            yield from source.skip_blanks()
            marker = yield from source.accept_any(markers)
            is_inside = marker == reasoning.opening
            if marker is None:
                source.at = start
                return
            yield Reasoning("")

    def _read_block(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers,
        openings: tuple[str, ...],
    ) -> Steps[bool]:
        """Yields a block of reasoning; returns whether a call ended it, not the closing marker."""
        markers = (reasoning.closing, *openings)
        while (marker := (yield from source.emit_until(markers, Reasoning))) in openings:
            start = source.at
            if (yield from self._read_marked(source, str(marker), calls)):
                yield from source.accept_marker(reasoning.closing)
                return True
            source.at = start
            yield Reasoning(str(marker))
        return False

    def _read_marked(
        self, source: AnswerText, marker: str, calls: Calls, bare: tuple[str, ...] = ()
    ) -> Steps[bool]:
        """Reads a call after its marker, which may begin a code block."""
        if marker in bare:
            source.at -= len(marker)
            return (yield from self.read_bare_call(source, calls))
        opening = marker if marker in self.openings else marker.partition("\n")[2]
        if not (yield from self.read_call(source, opening, calls)):
            return False
        for ending in self.endings:
            while (yield from source.accept_marker(ending)):
                pass
        if opening != marker:
            yield from source.accept_marker(_FENCE)
        return True


_FENCE = "```"


def _with_fences(openings: Iterable[str]) -> tuple[str, ...]:
    languages = ("", "json", "xml", "tool_call")
    return tuple(
        before + opening
        for opening in openings
        for before in ("", *(f"{_FENCE}{language}\n" for language in languages))
    )


class BracketedCalls(MarkedAnswer, ABC):
    """Reads calls that each begin with a marker, inside or outside a section of calls.

    `endings`: the markers that may end a section; those that begin one are the `openings` but for
    `beginning`, the marker at the beginning of a call.
    """

    beginning: str

    @abstractmethod
    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        """Reads a call after its beginning marker, to its end, and yields its events.

        Returns False if the text is not a call.
        """

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        if opening != self.beginning:
            yield from source.skip_blanks()
            if not (yield from source.accept(self.beginning)):
                return False
        if not (yield from self.read_one(source, calls)):
            return False
        while True:
            yield from source.skip_blanks()
            start = source.at
            if not (yield from source.accept(self.beginning)):
                break
            if not (yield from self.read_one(source, calls)):
                source.at = start
                break
        return True
