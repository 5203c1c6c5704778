"""Chooses a model's notation of tool calls by what its chat template shows."""

import json

from sharpi.dialogue.answer_text import AnswerText, CallArguments, CallBegin, Calls
from sharpi.dialogue.formats.gemma4 import Gemma4
from sharpi.dialogue.formats.harmony import Harmony
from sharpi.dialogue.formats.json_calls import LIST_BEGIN, JsonCalls, PythonCalls
from sharpi.dialogue.formats.marked_calls import MarkedCalls, OlderMistral
from sharpi.dialogue.notations import HERMES, JSON_NOTATIONS, MARKED_NOTATIONS
from sharpi.dialogue.template_capabilities import PROBE_CALL, ShownCall
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.tokenizer import Tokenizer

_HERMES = JsonCalls(HERMES)
# Where a template shows no call, the first whose signs are all there counts.
FORMATS: tuple[ToolFormat, ...] = (
    Harmony(),
    PythonCalls(),
    Gemma4(),
    *map(MarkedCalls, MARKED_NOTATIONS),
    OlderMistral(),
    *map(JsonCalls, JSON_NOTATIONS),
)


def choose_format(
    tokenizer: Tokenizer, source: str, shown: ShownCall | None
) -> tuple[ToolFormat, bool]:
    """Returns the notation of calls, and whether it is known to be the model's own.

    `source`: the chat templates; `shown`: a call as they render it, which the notation must read.
    Without a call, the signs count, in the vocabulary if there are none in the template. Hermes is
    what is left.
    """
    told = source + (shown.text if shown else "")
    forms = [form for form in FORMATS if all(sign in told for sign in form.signs)]
    if shown is not None:
        form = min(forms or [_HERMES], key=lambda form: _distance(form, shown))
        return form, _distance(form, shown) < _NOT_READ
    if not forms and tokenizer.id_of(LIST_BEGIN) is not None:  # LFM2's templates show no calls
        return PythonCalls(), True
    return (forms[0], True) if forms else (_HERMES, False)


_NOT_READ = (2, 0)


def _distance(form: ToolFormat, shown: ShownCall) -> tuple[int, int]:
    """Returns how badly a format reads and writes a shown call, then how much text it leaves."""
    left = [each for answer in shown.answers if (each := _left(form, answer)) is not None]
    if not left:
        return _NOT_READ
    return int(form.write([PROBE_CALL]) not in shown.text), min(left)


def _left(form: ToolFormat, answer: str) -> int | None:
    """Returns how much text a format leaves beside the call; None if it does not read the call."""
    source = AnswerText()
    source.append(answer)
    source.is_ended = True
    names: list[str] = []
    text = arguments = ""
    for event in form.read_answer(source, Calls([Tool(PROBE_CALL[0])]), None, False):
        if isinstance(event, CallBegin):
            names.append(event.name)
        elif isinstance(event, CallArguments):
            arguments += event.text
        elif event is not None:
            text += event.text
    return len(text) if (names, arguments) == ([PROBE_CALL[0]], json.dumps(PROBE_CALL[1])) else None
