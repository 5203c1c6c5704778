"""BracketedCalls: the base class for formats with calls in a section between two markers."""

from abc import abstractmethod

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps


class BracketedCalls(MarkedAnswer):
    """Reads calls that each begin with a marker, inside or outside a section of calls.

    `section_ends`: the markers that may end a section; those that begin one are the `openings` but
    for `beginning`, the marker at the beginning of a call.
    """

    section_ends: tuple[str, ...]
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
        for marker in self.section_ends:
            if (yield from source.accept_marker(marker)):
                break
        return True
