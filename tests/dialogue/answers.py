"""Reading answers in tests: tools, a small vocabulary, and events joined for comparison."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sharpi.constraints.grammars import Grammars
from sharpi.dialogue.answer_parser import AnswerParser
from sharpi.dialogue.answer_text import (
    AnswerEvent,
    AnswerText,
    CallArguments,
    CallBegin,
    Calls,
    Text,
)
from sharpi.dialogue.choose_format import FORMATS
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.byte_pair import byte_of_letter
from sharpi.tokenizer.reasoning import THINK, ReasoningMarkers
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

WEATHER = Tool(
    "get_weather",
    "The weather at a place.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "required": ["city"],
    },
)
CLOCK = Tool("get_time", "The time.", {"type": "object", "properties": {}})
TOOLS = (WEATHER, CLOCK)
END = "<|im_end|>"
FORMS = {form.name: form for form in FORMATS}


def small_tokenizer(
    *, control: Sequence[str] = (), shown: Sequence[str] = (), template: str | None = None
) -> Tokenizer:
    """Returns a tokenizer of all bytes, an end token and markers, some of them control tokens."""
    tokens = [*byte_of_letter(), END, *control, *shown]
    kinds = [TokenKind.NORMAL] * 256 + [TokenKind.CONTROL] * (1 + len(control))
    kinds += [TokenKind.USER_DEFINED] * len(shown)
    return Tokenizer(
        Vocabulary(
            "gpt2",
            pre_tokenizer="gpt-2",
            tokens=tokens,
            kinds=list(kinds),
            merges=[],
            special_ids={"eos": 256},
            chat_template=template,
        )
    )


def read(
    form: ToolFormat,
    pieces: Iterable[str],
    *,
    tools: Sequence[Tool] = TOOLS,
    markers: ReasoningMarkers | None = THINK,
    starts_inside: bool = False,
) -> list[Any]:
    """Returns the joined events of an answer."""
    source = AnswerText()
    parser = AnswerParser(source, form.read_answer(source, Calls(tools), markers, starts_inside))
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.flush()])


def joined(events: Iterable[AnswerEvent]) -> list[Any]:
    """Joins events of the same kind into (kind, text); calls into name and arguments."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, CallBegin):
            assert event.index == sum(kind == "call" for kind, *_ in found)
            found.append(("call", event.name, ""))
        elif isinstance(event, CallArguments):
            kind, name, text = found[-1]
            assert kind == "call"
            found[-1] = (kind, name, text + event.text)
        else:
            kind = "text" if isinstance(event, Text) else "reasoning"
            if found and found[-1][0] == kind:
                found[-1] = (kind, found[-1][1] + event.text)
            else:
                found.append((kind, event.text))
    return found


@cache
def grammars_of(tokenizer: Tokenizer) -> Grammars:
    """Returns the grammars of a tokenizer, each of which is compiled once."""
    return Grammars(tokenizer)


def is_accepted(tokenizer: Tokenizer, grammar: str, text: str) -> bool:
    """Returns whether a grammar allows each token of an answer and its end."""
    constraint = grammars_of(tokenizer).lark(grammar)
    ids = tokenizer.encode(text, add_bos=False, parse_special=True)
    end = min(tokenizer.end_ids)
    for token in [*ids, end]:
        allowed = constraint.allowed()
        if allowed is not None and not (int(allowed[token // 32]) >> token % 32) & 1:
            return False
        constraint.accept(token)
    return True
