"""Blanks between the parts of an answer."""

from collections.abc import Iterable

import pytest
from answers import joined

from sharpi.dialogue.answer_parser import Spacing
from sharpi.dialogue.answer_text import AnswerEvent, CallArguments, CallBegin, Reasoning, Text

CALL = [CallBegin(0, "f"), CallArguments(0, "{}")]


def spaced(events: Iterable[AnswerEvent]) -> list:
    spacing = Spacing()
    out = [shown for event in events for shown in spacing.feed(event)]
    return joined([*out, *spacing.flush()])


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([Text(" \n"), Text(" a \n"), Text(" b\n")], [("text", " \n a \n b\n")]),
        ([Text(" ")], [("text", " ")]),
        (
            [Reasoning("\n"), Reasoning("a \n"), Text("\n\nb\n")],
            [("reasoning", "a"), ("text", "b\n")],
        ),
        ([Reasoning("a\n"), Reasoning("b")], [("reasoning", "a\nb")]),
        ([Reasoning("\n"), Text("\n\nb")], [("text", "b")]),
        ([Reasoning("a"), Text("\n")], [("reasoning", "a")]),
        ([Text("a\n"), *CALL, Text("\n")], [("text", "a"), ("call", "f", "{}")]),
        ([Text("\n"), *CALL], [("call", "f", "{}")]),
        ([*CALL, Text("\nb\n")], [("call", "f", "{}"), ("text", "b\n")]),
        (
            [Text("a\n"), Reasoning("x"), Text(" "), Text("b")],
            [("text", "a"), ("reasoning", "x"), ("text", "\n\nb")],
        ),
    ],
)
def test_blanks(events: list[AnswerEvent], expected: list) -> None:
    assert spaced(events) == expected
