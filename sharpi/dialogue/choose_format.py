"""Chooses a model's notation of tool calls by what its chat template shows."""

import json
from collections.abc import Iterator

from msgspec import Struct

from sharpi.dialogue.answer_text import AnswerText, CallArguments, CallBegin, Calls
from sharpi.dialogue.formats.gemma4 import CALL_BEGIN, Gemma4
from sharpi.dialogue.formats.harmony import Harmony
from sharpi.dialogue.formats.json_calls import (
    APRIEL,
    COHERE,
    GIGACHAT,
    GIGACHAT_ROLE,
    GRANITE,
    HERMES,
    LLAMA,
    MINIMAX_M1,
    NEMOTRON,
    JsonCalls,
)
from sharpi.dialogue.formats.named_calls import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    FUNCTIONARY,
    KIMI,
    MISTRAL,
    MISTRAL_IDS,
    OLDER_MISTRAL,
    SOLAR,
    NamedCalls,
)
from sharpi.dialogue.formats.python_calls import LIST_BEGIN, PythonCalls
from sharpi.dialogue.formats.tagged_calls import (
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    GLM,
    HY3,
    KIMI_K3,
    MINIMAX,
    MINIMAX_M3,
    QWEN_CODER,
    SEED,
    TaggedCalls,
)
from sharpi.dialogue.template_capabilities import PROBE_CALL, ShownCall
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.tokenizer import Tokenizer


class Family(Struct, frozen=True):
    """A notation, and the texts by which a template, or what it renders, tells it."""

    signs: tuple[str, ...]
    form: ToolFormat


_HERMES = JsonCalls(HERMES)
_DEEPSEEK_CALLS = DEEPSEEK_V3.section[0]
# The first family whose signs are all there counts, so a more special one comes earlier.
FAMILIES = (
    Family(("<|channel|>", "<|message|>"), Harmony()),
    Family((_DEEPSEEK_CALLS, "```json"), NamedCalls(DEEPSEEK_V3)),
    Family((_DEEPSEEK_CALLS,), NamedCalls(DEEPSEEK_V31)),
    Family((KIMI.section[0],), NamedCalls(KIMI)),
    Family((KIMI_K3.section[0],), TaggedCalls(KIMI_K3)),
    Family((LIST_BEGIN,), PythonCalls()),
    Family((CALL_BEGIN,), Gemma4()),
    Family((MINIMAX_M3.section[0],), TaggedCalls(MINIMAX_M3)),
    Family(("<minimax:tool_call>",), TaggedCalls(MINIMAX)),
    Family(("｜DSML｜", "function_calls"), TaggedCalls(DEEPSEEK_V32)),
    Family(("｜DSML｜",), TaggedCalls(DEEPSEEK_V4)),
    Family((SOLAR.section[0],), NamedCalls(SOLAR)),
    Family(("<tool_calls:opensource>",), TaggedCalls(HY3)),
    Family(("<TOOLCALL>",), JsonCalls(NEMOTRON)),
    Family(("<|START_ACTION|>",), JsonCalls(COHERE)),
    Family(("<|tool_call|>",), JsonCalls(GRANITE)),
    Family(("<|function_call|>",), JsonCalls(GIGACHAT)),
    Family(("function call<|role_sep|>",), JsonCalls(GIGACHAT_ROLE)),
    Family(("<tool_call>", "<arg_key>"), TaggedCalls(GLM)),
    Family(("<seed:tool_call>",), TaggedCalls(SEED)),
    Family(("<function=", "<parameter="), TaggedCalls(QWEN_CODER)),
    Family(("<tool_call>",), _HERMES),
    Family(("<function=",), NamedCalls(FUNCTIONARY)),
    Family(("<tool_calls>",), JsonCalls(APRIEL)),
    Family(("<tool_calls>",), JsonCalls(MINIMAX_M1)),
    Family(("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"), NamedCalls(MISTRAL_IDS)),
    Family(("[TOOL_CALLS]", "[ARGS]"), NamedCalls(MISTRAL)),
    Family(("[TOOL_CALLS]",), OLDER_MISTRAL),
    Family(("<|python_tag|>",), JsonCalls(LLAMA)),
    Family(("ipython",), JsonCalls(LLAMA)),
)


def choose_format(
    tokenizer: Tokenizer, source: str, shown: ShownCall | None
) -> tuple[ToolFormat, bool]:
    """Returns the notation of calls, and whether it is known to be the model's own.

    `source`: the chat templates; `shown`: a call as they render it, which the notation must read.
    Without a call, the signs count, in the vocabulary if there are none in the template. Hermes is
    what is left.
    """
    forms = list(_told(source + (shown.text if shown else "")))
    if shown is not None:
        form = min(forms or [_HERMES], key=lambda form: _distance(form, shown))
        return form, _distance(form, shown) < _NOT_READ
    if not forms and tokenizer.id_of(LIST_BEGIN) is not None:  # LFM2's templates show no calls
        return PythonCalls(), True
    return (forms[0], True) if forms else (_HERMES, False)


def _told(text: str) -> Iterator[ToolFormat]:
    return (family.form for family in FAMILIES if all(sign in text for sign in family.signs))


_NOT_READ = (2, 0)


def _distance(form: ToolFormat, shown: ShownCall) -> tuple[int, int]:
    """Returns how far a format is from the call that a template renders; the least is the best.

    A format that reads it is better, then one that writes it the same, then one that leaves less
    text.
    """
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
