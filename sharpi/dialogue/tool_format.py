"""ToolFormat reads and writes a model family's tool calls, as a Notation says how they are written.

A format reads reasoning, then text and calls, each of which a marker begins.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sharpi.dialogue.answer_text import AnswerText, Calls, Reasoning, Steps, Text
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.notations import Notation
from sharpi.dialogue.python_call import read_named_call
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import ReasoningMarkers

WrittenCall: TypeAlias = tuple[str, Mapping[str, Any]]
_TOKEN = re.compile(r"<[^<>\s\"]+>|\[[A-Z_]+\]|\]<\]\w+\[>\[")
_FENCE, _LANGUAGES = "```", ("", "json", "xml", "tool_call")


class ToolFormat(ABC):
    """A stateless reader and writer of one notation of tool calls.

    `beginning`: the marker at the beginning of a call, if it differs from the section's. `written`:
    texts with the markers of the format, some of which may be control tokens. `openings`: the
    markers that may begin a call, in a code block or not; `endings`: those that may follow it, and
    that models repeat. `bare_openings`: what may begin a call after other text. `reasoning`: the
    markers around reasoning, if the format defines them.
    """

    notation: Notation
    bare_openings: tuple[str, ...] = ()
    reasoning: ReasoningMarkers | None = None

    def __init__(
        self, notation: Notation, beginning: str = "", written: Iterable[str] = ()
    ) -> None:
        self.notation, self.name, self.beginning = notation, notation.name, beginning
        pairs = (notation.section, *notation.others)
        begins = (*(begin.rstrip() for begin, _ in pairs), beginning)
        self.openings = tuple(filter(None, begins))
        self.endings = tuple(filter(None, (end.strip() for _, end in pairs)))
        self.signs = notation.signs or self.openings[:1]
        self.markers = _tokens_in("".join((*notation.section, beginning, *written)))

    @abstractmethod
    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the text of call `number` of an answer, without the section around it."""

    @abstractmethod
    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        """Returns a grammar expression for a call of a tool, without the section around it."""

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

    def write(self, calls: Sequence[WrittenCall]) -> str:
        """Returns the text of calls as the model would have written it."""
        form, (opening, closing) = self.notation, self.notation.around
        written = [self.written(number, *call) for number, call in enumerate(calls)]
        if form.repeats:
            return form.between.join(f"{opening}{each}{closing}" for each in written)
        return f"{opening}{form.between.join(written)}{closing}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        """Returns a grammar expression for one call, or if `parallel`, for one or more calls."""
        form = self.notation
        opening, closing = map(grammar.literal, form.around)
        call = " | ".join(self.called(grammar, tool) for tool in tools)
        call = grammar.rule(f"{opening} ({call}) {closing}" if form.repeats else call)
        if parallel and not form.is_single:
            call = f"{call} ({grammar.literal(form.between)} {call})*"
        return call if form.repeats else f"{opening} {call} {closing}"

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields the events of an answer's reasoning, text and calls, until the answer ends.

        A call ends reasoning that the model has not closed. If `calls` has no tools, nothing is
        read as a call. `starts_inside`: the prompt ends within the reasoning.
        """
        openings = _with_fences(self.openings) if calls.tools else ()
        if reasoning is not None:
            yield from self._read_reasoning(source, calls, reasoning, openings, starts_inside)
        if calls.tools and not calls.count:
            yield from source.attempt(self.read_bare_call(source, calls))
        bare = self.bare_openings if calls.tools else ()
        around = reasoning.around_answer if reasoning is not None else ()
        while marker := (yield from source.emit_until((*openings, *bare, *around), Text)):
            if marker not in around and not (yield from self._read_marked(source, marker, calls)):
                yield Text(marker)

    def _read_reasoning(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers,
        openings: tuple[str, ...],
        is_inside: bool,
    ) -> Steps[None]:
        """Yields the events of the reasoning before the answer, which may have several blocks."""
        ends = (reasoning.closing, *openings)
        marker: str | None = reasoning.opening if is_inside else None
        while marker or (marker := (yield from self._next_block(source, reasoning))):
            yield Reasoning("")
            if marker != reasoning.closing:
                while marker := (yield from source.emit_until(ends, Reasoning)):
                    if marker == reasoning.closing:
                        break
                    if (yield from self._read_marked(source, marker, calls)):
                        yield from source.accept_marker(reasoning.closing)
                        return
                    yield Reasoning(marker)
            marker = None

    def _next_block(self, source: AnswerText, reasoning: ReasoningMarkers) -> Steps[str | None]:
        """Reads a marker that begins a block of reasoning, or a closing one alone."""
        start = source.at
        yield from source.skip_blanks()
        marker = yield from source.accept_any((reasoning.opening, reasoning.closing))
        source.at = source.at if marker else start
        return marker

    def _read_marked(self, source: AnswerText, marker: str, calls: Calls) -> Steps[bool]:
        """Reads a call after its marker; without one, returns False and goes back to the marker."""
        if marker in self.bare_openings:
            source.at -= len(marker)
            is_call = yield from source.attempt(self.read_bare_call(source, calls))
            source.at += 0 if is_call else len(marker)
            return is_call
        opening = marker if marker in self.openings else marker.partition("\n")[2]
        if not (yield from source.attempt(self.read_call(source, opening, calls))) and not (
            yield from source.attempt(read_named_call(source, calls))
        ):
            return False
        for ending in self.endings:
            while (yield from source.accept_marker(ending)):
                pass
        if opening != marker:
            yield from source.accept_marker(_FENCE)
        return True


class BracketedCalls(ToolFormat):
    """Reads calls that each begin with the marker `beginning`, inside or outside a section."""

    @abstractmethod
    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        """Yields the events of a call behind its marker; returns False if the text is none."""

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        is_begun, count = opening == self.beginning, calls.count
        while (yield from source.attempt(self._read_next(source, calls, is_begun))):
            is_begun = False
        return calls.count > count

    def _read_next(self, source: AnswerText, calls: Calls, is_begun: bool) -> Steps[bool]:
        yield from source.skip_blanks()
        is_begun = is_begun or (yield from source.accept(self.beginning))
        return is_begun and (yield from self.read_one(source, calls))


def _with_fences(openings: Iterable[str]) -> tuple[str, ...]:
    fences = ("", *(f"{_FENCE}{language}\n" for language in _LANGUAGES))
    return tuple(fence + opening for opening in openings for fence in fences)


def _tokens_in(written: str) -> tuple[str, ...]:
    """Returns the texts in a notation that have the form of special tokens, such as `<|end|>`."""
    return tuple(dict.fromkeys(_TOKEN.findall(written)))
