"""Markers of reasoning and of answers: `<think>` ... `</think>` and those of other families."""

from collections.abc import Collection
from typing import AnyStr, Protocol

from msgspec import Struct
from msgspec.structs import replace


class ReasoningMarkers(Struct, frozen=True):
    """The marker texts that open and close reasoning, and those around the answer, if any.

    `opens_answer`: those before every answer, of which only the last one is not optional. `signs`:
    what a chat template or a vocabulary with these markers has; empty for the closing one.
    """

    opening: str
    closing: str
    around_answer: tuple[str, ...] = ()
    opens_answer: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()


THINK = ReasoningMarkers("<think>", "</think>")
GEMMA_THOUGHT = ReasoningMarkers("<|channel>thought\n", "<channel|>", signs=("<|channel>thought",))
KNOWN_MARKERS = (
    THINK,
    ReasoningMarkers("[THINK]", "[/THINK]"),
    ReasoningMarkers(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        ("<|START_TEXT|>", "<|END_TEXT|>"),
        opens_answer=("<|START_TEXT|>",),
    ),
    ReasoningMarkers(
        "<|think|>",
        "<|end|>",
        ("<|begin|>assistant", "<|content|>", "<|end|>"),
        opens_answer=("<|begin|>assistant", "<|content|>"),
        signs=("<|think|>",),  # Solar Open; other templates end messages with `<|end|>`
    ),
    # Templates write the ending of Hy3's markers, and all of Kimi K3's, by a function.
    ReasoningMarkers(
        "<think:opensource>",
        "</think:opensource>",
        signs=("</think:opensource>", "'</think{}>'.format"),
    ),
    ReasoningMarkers(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        opens_answer=("<|open|>response<|sep|>",),
        signs=("open_tag('think'",),
    ),
    GEMMA_THOUGHT,
    ReasoningMarkers("<mm:think>", "</mm:think>"),
    ReasoningMarkers("<seed:think>", "</seed:think>"),
    ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>"),
    ReasoningMarkers(
        "Here are my reasoning steps:\n",
        "[BEGIN FINAL RESPONSE]",
        ("[END FINAL RESPONSE]",),
    ),
)
# Texts that mark nothing but reasoning.
REASONING_TEXTS = tuple(
    text
    for markers in KNOWN_MARKERS
    if not markers.signs or markers.closing in markers.signs
    for text in (markers.opening, markers.closing)
)
_AROUND_ANSWERS = (("<response>", "</response>"), ("<answer>", "</answer>"))


class NamedTokens(Protocol):
    """What tells a model's markers: its chat template, and the ids of its tokens."""

    @property
    def chat_template(self) -> str | None: ...

    def id_of(self, text: str) -> int | None: ...


def find_markers(tokenizer: NamedTokens) -> ReasoningMarkers | None:
    """Returns the reasoning markers in the chat template, or else in the vocabulary, or None."""
    template = tokenizer.chat_template or ""
    around = next((pair for pair in _AROUND_ANSWERS if pair[1] in template), ())
    for names in (template.__contains__, lambda sign: tokenizer.id_of(sign) is not None):
        for markers in KNOWN_MARKERS:
            if any(map(names, markers.signs or (markers.closing,))):
                return replace(markers, around_answer=markers.around_answer or around)
    return None


def opens_reasoning(prompt: str, markers: ReasoningMarkers = THINK) -> bool:
    """Returns whether a rendered prompt ends with the opening marker of reasoning."""
    return prompt.rstrip().endswith(markers.opening)


def unfinished(text: AnyStr, markers: Collection[AnyStr]) -> int:
    """Returns the length of the longest suffix of the text that is a prefix of a marker."""
    longest = max(map(len, markers), default=1) - 1
    for length in range(min(len(text), longest), 0, -1):
        if any(marker.startswith(text[-length:]) for marker in markers):
            return length
    return 0
