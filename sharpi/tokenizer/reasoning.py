"""Separates reasoning, such as `<think>` ... `</think>`, from the answer while it streams."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from sharpi.tokenizer.tokenizer import Tokenizer

Kind = Literal["reasoning", "answer"]
ReasoningDelta = tuple[Kind, str]


class ReasoningMarkers(Struct, frozen=True):
    """The marker texts that open and close reasoning, and those around the answer, if any."""

    opening: str
    closing: str
    around_answer: tuple[str, ...] = ()


THINK = ReasoningMarkers("<think>", "</think>")
KNOWN_MARKERS = (
    THINK,
    ReasoningMarkers("[THINK]", "[/THINK]"),
    ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
)


_AROUND_ANSWERS = (("<response>", "</response>"), ("<answer>", "</answer>"))


def find_markers(tokenizer: Tokenizer) -> ReasoningMarkers | None:
    """Returns the reasoning markers in the chat template or the vocabulary; None without any."""
    template = tokenizer.chat_template or ""
    around = next((pair for pair in _AROUND_ANSWERS if pair[1] in template), ())
    for markers in KNOWN_MARKERS:
        if markers.closing in template or tokenizer.id_of(markers.closing) is not None:
            return replace(markers, around_answer=around)
    return None


def opens_reasoning(prompt: str, markers: ReasoningMarkers = THINK) -> bool:
    """Returns whether a rendered prompt ends with the opening marker of reasoning."""
    return prompt.rstrip().endswith(markers.opening)


class ReasoningSplitter:
    """Splits streamed text into reasoning and answer, and drops the markers.

    A marker may be split across pieces of text. `starts_inside`: the text begins within reasoning.
    """

    def __init__(self, starts_inside: bool = False, markers: ReasoningMarkers = THINK) -> None:
        self._markers, self._inside = markers, starts_inside
        self._held = ""

    def feed(self, text: str) -> Iterator[ReasoningDelta]:
        """Adds text and yields its deltas; holds back text that may be the start of a marker."""
        self._held += text
        while True:
            before, found, after = self._held.partition(self._awaited)
            if not found:
                break
            if before:
                yield self._kind, before
            self._inside, self._held = not self._inside, after
        certain = len(self._held) - _unfinished(self._held, self._awaited)
        shown, self._held = self._held[:certain], self._held[certain:]
        if shown:
            yield self._kind, shown

    def flush(self) -> Iterator[ReasoningDelta]:
        """Ends the text and yields the delta that was held back."""
        held, self._held = self._held, ""
        if held:
            yield self._kind, held

    @property
    def _awaited(self) -> str:
        return self._markers.closing if self._inside else self._markers.opening

    @property
    def _kind(self) -> Kind:
        return "reasoning" if self._inside else "answer"


def _unfinished(text: str, marker: str) -> int:
    """Returns the length of the longest suffix of the text that is a prefix of the marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
