"""Gemma 4's tool format: `call:`, the name and arguments in Gemma's notation, between markers."""

import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.gemma_values import QUOTE, pass_object, written_object
from sharpi.dialogue.keyed_grammar import ArgumentSpec, values_in_order
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool
from sharpi.dialogue.typed_value import may_be_text
from sharpi.tokenizer.reasoning import ReasoningMarkers

CALL_BEGIN, _CALL_END = "<|tool_call>", "<tool_call|>"
THOUGHT = ReasoningMarkers("<|channel>thought\n", "<channel|>")
_NAME = re.compile(r"[^\s<>{}]+")


class Gemma4(MarkedAnswer):
    """Reads and writes `<|tool_call>call:name{key:<|"|>text<|"|>,key:3}<tool_call|>`.

    Reasoning is in a channel.
    """

    openings = (CALL_BEGIN,)
    reasoning = THOUGHT
    markers = (CALL_BEGIN, _CALL_END, QUOTE, "<|channel>", "<channel|>")

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from source.accept("call:")):
            return False
        name, marker = yield from source.read_until(("{", _CALL_END))
        if marker != "{" or not _NAME.fullmatch(name.strip()):
            return False
        source.at -= 1
        yield calls.begin(name.strip())
        yield from pass_object(source, calls)
        yield from source.accept_marker(_CALL_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return "".join(
            f"{CALL_BEGIN}call:{name}{written_object(dict(arguments))}{_CALL_END}"
            for name, arguments in calls
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = []
        for tool in tools:
            values = [
                (_value_expression(grammar, value), value.is_required)
                for value in sorted(values_in_order(tool), key=lambda value: value.key)
            ]
            begun = grammar.literal(f"{CALL_BEGIN}call:{tool.name}{{")
            choices.append(f"{begun} {grammar.listed(values, ',')}")
        call = grammar.rule(f"({' | '.join(choices)}) {grammar.literal(f'}}{_CALL_END}')}")
        return f"{call}+" if parallel else call


def _value_expression(grammar: CallGrammar, value: ArgumentSpec) -> str:
    """Returns a grammar expression for a key and its value; lists and objects are in JSON.

    The parser reads JSON as well as Gemma's notation.
    """
    key = f"{value.key}:"
    if value.words:
        words = " | ".join(grammar.literal(f"{QUOTE}{word}{QUOTE}") for word in value.words)
        return f"{grammar.literal(key)} ({words})"
    if may_be_text(value.schema):
        return f"{grammar.literal(key + QUOTE)} {grammar.text_until(QUOTE)}"
    return f"{grammar.literal(key)} {grammar.json(value.schema)}"
