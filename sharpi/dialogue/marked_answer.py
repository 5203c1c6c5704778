"""MarkedAnswer: the shared reader of formats in which a marker begins each call."""

from abc import ABC, abstractmethod
from typing import ClassVar

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.events import Reasoning, Text
from sharpi.tokenizer.reasoning import ReasoningMarkers


class MarkedAnswer(ABC):
    """Reads reasoning, then text and calls; `openings` are the markers that may begin a call."""

    openings: ClassVar[tuple[str, ...]]
    reasoning: ClassVar[ReasoningMarkers | None] = None

    @abstractmethod
    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        """Reads a call after its opening; returns False, with no events yielded, if it was text."""

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        """Reads a call without a marker at the beginning of an answer.

        Returns False if there is none.
        """
        yield from ()
        return False

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        markers: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields reasoning, text and calls until the end."""
        if markers is not None:
            yield from _read_reasoning(source, markers, starts_inside)
        if calls.tools:
            yield from self._or_text(source, self.read_bare_call(source, calls), "")
        openings = self.openings if calls.tools else ()
        while (opening := (yield from source.pass_until(openings, Text))) is not None:
            yield from self._or_text(source, self.read_call(source, opening, calls), opening)

    def _or_text(self, source: AnswerText, reading: Steps[bool], opening: str) -> Steps[None]:
        """Reads a call; if it is none, yields its opening as text and continues after it."""
        start = source.at
        if not (yield from reading):
            source.at = start
            if opening:
                yield Text(opening)


def _read_reasoning(
    source: AnswerText, markers: ReasoningMarkers, starts_inside: bool
) -> Steps[None]:
    """Yields the reasoning before the answer."""
    is_inside = starts_inside
    while True:
        if is_inside:
            yield Reasoning("")
            yield from source.pass_until((markers.closing,), Reasoning)
        start = source.at
        yield from source.skip_blanks()
        is_inside = yield from source.accept(markers.opening)
        if not is_inside:
            source.at = start
            return
