"""The notations of tool calls, one of each model family."""

from msgspec import Struct
from msgspec.structs import replace


class Notation(Struct, frozen=True, kw_only=True):
    """How one family writes calls.

    `section`: what is around all calls, or around each if `repeats`; `between`: what is between
    two. `is_list`: all calls are in brackets. `is_single`: an answer has one call. `others`: pairs
    that are read in place of the section. `signs`: what a template of the family has, or renders in
    a call; () for the first marker.
    """

    name: str
    section: tuple[str, str] = ("", "")
    between: str = ""
    repeats: bool = False
    is_list: bool = False
    is_single: bool = False
    others: tuple[tuple[str, str], ...] = ()
    signs: tuple[str, ...] = ()

    @property
    def around(self) -> tuple[str, str]:
        """What is before the first call, and after the last one."""
        opening, closing = self.section
        return (f"{opening}[", f"]{closing}") if self.is_list else self.section


class JsonNotation(Notation, frozen=True, kw_only=True):
    """How a family writes calls as JSON; `is_strict`: only those that name an available tool."""

    between: str = ", "
    name_key: str = "name"
    arguments_key: str = "arguments"
    is_strict: bool = False


HERMES = JsonNotation(
    name="Hermes", section=("<tool_call>\n", "\n</tool_call>"), between="\n", repeats=True
)
LLAMA = JsonNotation(
    name="Llama 3", between="; ", arguments_key="parameters", is_single=True, is_strict=True,
    others=(("<|python_tag|>", ""), ("<|python_start|>", "<|python_end|>")), signs=("ipython",),
)  # fmt: skip
JSON_NOTATIONS = (
    JsonNotation(name="Nemotron Nano v2", section=("<TOOLCALL>", "</TOOLCALL>"), is_list=True),
    JsonNotation(name="Granite 3", section=("<|tool_call|>", ""), is_list=True),
    JsonNotation(
        name="Cohere", section=("<|START_ACTION|>", "<|END_ACTION|>"), is_list=True,
        name_key="tool_name", arguments_key="parameters",
    ),
    JsonNotation(
        name="GigaChat 3.1", section=("<|function_call|>", ""), between="", repeats=True
    ),
    JsonNotation(
        name="GigaChat 3", section=("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
        between="", is_single=True, others=(("function call<|role_sep|>", ""),),
    ),
    HERMES,
    JsonNotation(name="Apriel", section=("<tool_calls>", "</tool_calls>"), is_list=True),
    JsonNotation(name="MiniMax M1", section=("<tool_calls>\n", "\n</tool_calls>"), between="\n"),
    LLAMA,
    replace(LLAMA, signs=LLAMA.others[0][:1]),
)  # fmt: skip


class MarkedNotation(Notation, frozen=True, kw_only=True):
    """How one family writes calls with markers or tags.

    A call is `begin`, `call` with places for `{name}`, `{number}` and an `{id}` of nine letters and
    digits, the arguments, and `call_end`; the first number is `first`. The arguments are a JSON
    object. With `argument` and `argument_end` each has tags around it instead, with places for
    `{key}` and its `{type}`. `head`: a regular expression of what is read between `begin` and a
    JSON object; tags are read as they are written. `prefix`: what begins the tags in a value that
    is a list or an object; "" if these are JSON. `mistaken`: what the model writes by mistake.
    """

    begin: str
    call: str
    call_end: str = ""
    head: str = ""
    argument: str = ""
    argument_end: str = ""
    prefix: str = ""
    first: int = 0
    mistaken: tuple["MarkedNotation", ...] = ()


def _invoked(name: str, section: str, mark: str = "", typed: str = "") -> MarkedNotation:
    """Returns the notation of `<invoke name="...">` with `<parameter name="...">` in it."""
    return MarkedNotation(
        name=name,
        begin=f'<{mark}invoke name="',
        call='{name}">\n',
        call_end=f"</{mark}invoke>\n",
        argument=f'<{mark}parameter name="{{key}}"{typed}>',
        argument_end=f"</{mark}parameter>\n",
        section=(f"<{section}>\n", f"</{section}>"),
    )


def _dsml(name: str, *sections: str) -> MarkedNotation:
    """Returns DeepSeek's notation with the first section; the model mistakes others for it."""
    marks = ("｜DSML｜", "|DSML|", "｜｜DSML｜｜", "||DSML||", "‖DSML‖")
    own, *mistaken = (
        _invoked(name, f"{mark}{section}", mark, ' string="{is_text}"')
        for mark in marks
        for section in sections
    )
    return replace(own, mistaken=tuple(mistaken))


_DEEPSEEK = MarkedNotation(
    name="DeepSeek V3.1", begin="<｜tool▁call▁begin｜>",
    call="{name}<｜tool▁sep｜>", call_end="<｜tool▁call▁end｜>",
    head="(?:function<｜tool▁sep｜>)?{name}(?:<｜tool▁sep｜>)?",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)  # fmt: skip
MISTRAL = MarkedNotation(
    name="Mistral", begin="[TOOL_CALLS]", call="{name}[ARGS]",
    head=r"{name}(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?", signs=("[TOOL_CALLS]", "[ARGS]"),
)  # fmt: skip
_SPACE = "]<]minimax[>["
_QWEN = MarkedNotation(
    name="Qwen3-Coder", begin="<function=", call="{name}>\n", call_end="</function>\n",
    argument="<parameter={key}>\n", argument_end="\n</parameter>\n",
    section=("<tool_call>\n", "</tool_call>"), between="\n", repeats=True,
    signs=("<function=", "<parameter="),
)  # fmt: skip
MARKED_NOTATIONS = (
    MarkedNotation(
        name="GLM-4.5", begin="<tool_call>", call="{name}\n", call_end="</tool_call>",
        argument="<arg_key>{key}</arg_key>\n<arg_value>", argument_end="</arg_value>\n",
        between="\n", signs=("<tool_call>", "<arg_key>"),
    ),
    MarkedNotation(
        name="Hy3", begin="<tool_call:opensource>", call="{name}<tool_sep:opensource>\n",
        call_end="</tool_call:opensource>\n",
        argument="<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
        argument_end="</arg_value:opensource>\n",
        section=("<tool_calls:opensource>\n", "</tool_calls:opensource>"),
    ),
    MarkedNotation(
        name="Kimi K3", begin='<|open|>call tool="', call='{name}" index="{number}"<|sep|>',
        call_end="<|close|>call<|sep|>", first=1,
        argument='<|open|>argument key="{key}" type="{type}"<|sep|>',
        argument_end="<|close|>argument<|sep|>",
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    MarkedNotation(
        name="MiniMax M3", begin=f'{_SPACE}<invoke name="', call='{name}">',
        call_end=f"{_SPACE}</invoke>\n", argument=f"{_SPACE}<{{key}}>",
        argument_end=f"{_SPACE}</{{key}}>",
        section=(f"{_SPACE}<tool_call>\n", f"{_SPACE}</tool_call>"), prefix=_SPACE,
    ),
    _invoked("MiniMax M2", "minimax:tool_call"),
    _invoked("Muse", "atem:function_calls", "atem:"),
    _dsml("DeepSeek V3.2", "function_calls", "tool_calls"),
    _dsml("DeepSeek V4", "tool_calls", "function_calls"),
    replace(
        _QWEN, name="Seed-OSS", section=("<seed:tool_call>\n", "</seed:tool_call>"), signs=()
    ),
    _QWEN,
    replace(
        _DEEPSEEK, name="DeepSeek V3", between="\n",
        call="function<｜tool▁sep｜>{name}\n```json\n", call_end="\n```<｜tool▁call▁end｜>",
        signs=(_DEEPSEEK.section[0], "```json"),
    ),
    _DEEPSEEK,
    MarkedNotation(
        name="Kimi K2", begin="<|tool_call_begin|>",
        call="functions.{name}:{number}<|tool_call_argument_begin|>", call_end="<|tool_call_end|>",
        head=r"(?:functions\.)?{name}(?::\d+)?<\|tool_call_argument_begin\|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        others=(("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),),
    ),
    MarkedNotation(
        name="Solar Open", begin="<|tool_call:begin|>",
        call="{id}<|tool_call:name|>{name}<|tool_call:args|>", call_end="<|tool_call:end|>",
        head=r"[^<]*<\|tool_call:name\|>{name}<\|tool_call:args\|>",
        section=("<|tool_calls|>", "<|calls|>"),
    ),
    replace(
        MISTRAL, call="{name}[CALL_ID]{id}[ARGS]",
        signs=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    ),
    MISTRAL,
    MarkedNotation(
        name="Functionary 3.1", begin="<function=", call="{name}>", call_end="</function>",
        head="{name}>",
    ),
)  # fmt: skip
