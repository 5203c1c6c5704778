"""Tool formats with XML-like tags: parameters in invocations, in one pair of outer tags."""

import re
from collections.abc import Sequence

from msgspec import Struct

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import KeyedArguments, keyed_expression
from sharpi.dialogue.tool_format import WrittenCall, value_text
from sharpi.dialogue.tools import Tool

_NAME = re.compile(r"[^\s<>\"]+")


class TagNotation(Struct, frozen=True):
    """The tags of one family; `prefix` begins the name of each inner tag."""

    opening: str
    closing: str
    prefix: str = ""
    typed: bool = False  # a parameter says whether it is a string


MINIMAX = TagNotation("<minimax:tool_call>", "</minimax:tool_call>")
_DSML = "｜DSML｜"
DEEPSEEK_V32, DEEPSEEK_V4 = (
    TagNotation(f"<{_DSML}{name}>", f"</{_DSML}{name}>", _DSML, typed=True)
    for name in ("function_calls", "tool_calls")
)


class InvokeTags(BracketedCalls):
    """Reads and writes `<parameter name="...">value</parameter>` lines in `<invoke name="...">`."""

    def __init__(self, notation: TagNotation) -> None:
        prefix = notation.prefix
        self._opening, self._closing = notation.opening, notation.closing
        self._invoke, self._invoke_end = f'<{prefix}invoke name="', f"</{prefix}invoke>"
        self._parameter = f'<{prefix}parameter name="'
        self._parameter_end = f"</{prefix}parameter>"
        self._is_typed = notation.typed
        self.openings, self.section_ends = (notation.opening,), (notation.closing,)
        self.beginning = self._invoke
        self.markers = (notation.opening, notation.closing)

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        name, end = yield from source.read_until(('">', "\n"))
        if end != '">' or not _NAME.fullmatch(name):
            return False
        yield calls.begin(name)
        arguments = KeyedArguments(calls, name)
        while (yield from source.accept_marker(self._parameter)):
            key, end = yield from source.read_until(('">',))
            if end is None:
                break
            key = key.partition('"')[0]  # without the type that may follow
            if not (yield from arguments.pass_value(source, key, (self._parameter_end,))):
                return True
        yield from source.accept_marker(self._invoke_end)
        yield from arguments.end()
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        bodies = [
            f'{self._invoke}{name}">\n'
            + "".join(
                f'{self._parameter}{key}"{self._type(isinstance(value, str))}>'
                f"{value_text(value)}{self._parameter_end}\n"
                for key, value in arguments.items()
            )
            + f"{self._invoke_end}\n"
            for name, arguments in calls
        ]
        return f"{self._opening}\n{''.join(bodies)}{self._closing}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [
            f"{grammar.literal(f'{self._invoke}{tool.name}{chr(34)}>{chr(10)}')} "
            + keyed_expression(grammar, tool, self._begun, f"{self._parameter_end}\n")
            for tool in tools
        ]
        end = grammar.literal(f"{self._invoke_end}\n")
        call = grammar.rule(f"({' | '.join(choices)}) {end}")
        several = f"{call}+" if parallel else call
        opening, closing = grammar.literal(f"{self._opening}\n"), grammar.literal(self._closing)
        return f"{opening} {several} {closing}"

    def _begun(self, key: str, is_text: bool) -> str:
        return f'{self._parameter}{key}"{self._type(is_text)}>'

    def _type(self, is_text: bool) -> str:
        return f' string="{str(is_text).lower()}"' if self._is_typed else ""
