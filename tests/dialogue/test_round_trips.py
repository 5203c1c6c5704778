"""Every family's calls: chosen by what a template renders, and read back as it renders them."""

import json
from typing import Any

import pytest
from answers import TOOLS, joined, small_tokenizer

from sharpi.dialogue.choose_format import FORMATS
from sharpi.dialogue.dialogue_format import dialogue_format
from sharpi.tokenizer.chat_template import chat_format

_FRAME = (
    "{% macro args(c) %}{{ c.function.arguments | tojson }}{% endmacro %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% if m.tool_calls %}CALLS{% endif %}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_KEYED = "{% for k, v in c.function.arguments.items() %}ARGUMENT{% endfor %}"
_VALUE = "{{ v if v is string else v | tojson }}"
_NAME, _JSON = "{{ c.function.name }}", "{{ args(c) }}"
_OBJECT = f'{{"name": "{_NAME}", "arguments": {_JSON}}}'
_LIST = _OBJECT + "{{ ', ' if not loop.last }}"
_DSML = f'｜DSML｜parameter name="{{{{ k }}}}" string="{{{{ (v is string) | tojson }}}}">{_VALUE}'
_NS = "]<]minimax[>["


def keyed(before: str, argument: str, after: str) -> str:
    return before + _KEYED.replace("ARGUMENT", argument) + after


def qwen(tag: str) -> str:
    inner = keyed(
        f"<function={_NAME}>\n", f"<parameter={{{{ k }}}}>\n{_VALUE}\n</parameter>\n", "</function>"
    )
    return f"<{tag}>\n{inner}\n</{tag}>"


# What is before the calls, each of them, and what is after them.
ROUND_TRIPS = {
    "Hermes": ("", f"<tool_call>\n{_OBJECT}\n</tool_call>", ""),
    "Nemotron Nano v2": ("<TOOLCALL>[", _LIST, "]</TOOLCALL>"),
    "Cohere": (
        "<|START_ACTION|>[\n",
        f'  {{"tool_call_id": "0", "tool_name": "{_NAME}", "parameters": {_JSON}}}'
        "{{ ',' if not loop.last }}\n",
        "]<|END_ACTION|>",
    ),
    "Granite 3": ("<|tool_call|>[", _LIST, "]"),
    "GigaChat 3.1": ("", f"<|function_call|>{_OBJECT}", ""),
    "GigaChat 3": ("", f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_OBJECT}", ""),
    "Apriel": ("<tool_calls>[", _LIST, "]</tool_calls>"),
    "MiniMax M1": ("<tool_calls>\n", f"{_OBJECT}\n", "</tool_calls>"),
    "Mistral": ("", f"[TOOL_CALLS]{_NAME}[ARGS]{_JSON}", ""),
    "Mistral with ids": ("", f"[TOOL_CALLS]{_NAME}[CALL_ID]abcdef123[ARGS]{_JSON}", ""),
    "Mistral with a list": ("[TOOL_CALLS] [", _LIST, "]"),
    "Llama 3": ("{# ipython #}", f'{{"name": "{_NAME}", "parameters": {_JSON}}}\n', ""),
    "DeepSeek V3": (
        "<｜tool▁calls▁begin｜>",
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{_NAME}\n```json\n{_JSON}\n```"
        "<｜tool▁call▁end｜>\n",
        "<｜tool▁calls▁end｜>",
    ),
    "DeepSeek V3.1": (
        "<｜tool▁calls▁begin｜>",
        f"<｜tool▁call▁begin｜>{_NAME}<｜tool▁sep｜>{_JSON}<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "Kimi K2": (
        "<|tool_calls_section_begin|>",
        f"<|tool_call_begin|>functions.{_NAME}:{{{{ loop.index0 }}}}<|tool_call_argument_begin|>"
        f"{_JSON}<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
    "Solar Open": (
        "<|tool_calls|>",
        f"<|tool_call:begin|>a1<|tool_call:name|>{_NAME}<|tool_call:args|>{_JSON}<|tool_call:end|>",
        "",
    ),
    "Functionary 3.1": ("", f"<function={_NAME}>{_JSON}</function>", ""),
    "Qwen3-Coder": ("", qwen("tool_call"), ""),
    "Seed-OSS": ("", qwen("seed:tool_call"), ""),
    "GLM-4.5": (
        "",
        keyed(
            f"<tool_call>{_NAME}\n",
            f"<arg_key>{{{{ k }}}}</arg_key>\n<arg_value>{_VALUE}</arg_value>\n",
            "</tool_call>",
        ),
        "",
    ),
    **{
        name: (
            f"<{section}>\n",
            keyed(
                f'<{mark}invoke name="{_NAME}">\n',
                f'<{mark}parameter name="{{{{ k }}}}">{_VALUE}</{mark}parameter>\n',
                f"</{mark}invoke>\n",
            ),
            f"</{section}>",
        )
        for name, section, mark in (
            ("MiniMax M2", "minimax:tool_call", ""),
            ("Muse", "atem:function_calls", "atem:"),
        )
    },
    "MiniMax M3": (
        f"{_NS}<tool_call>\n",
        keyed(
            f'{_NS}<invoke name="{_NAME}">',
            f"{_NS}<{{{{ k }}}}>{_VALUE}{_NS}</{{{{ k }}}}>",
            f"{_NS}</invoke>\n",
        ),
        f"{_NS}</tool_call>",
    ),
    **{
        name: (
            f"<｜DSML｜{section}>\n",
            keyed(
                f'<｜DSML｜invoke name="{_NAME}">\n',
                f"<{_DSML}</｜DSML｜parameter>\n",
                "</｜DSML｜invoke>\n",
            ),
            f"</｜DSML｜{section}>",
        )
        for name, section in (("DeepSeek V3.2", "function_calls"), ("DeepSeek V4", "tool_calls"))
    },
    "Hy3": (  # whose markers a function writes
        "{% set o = ':opensource' %}{{ '<tool_calls{}>'.format(o) }}\n",
        keyed(
            f"{{{{ '<tool_call{{}}>'.format(o) }}}}{_NAME}{{{{ '<tool_sep{{}}>'.format(o) }}}}\n",
            "{{ '<arg_key{}>'.format(o) }}{{ k }}{{ '</arg_key{}>'.format(o) }}\n"
            f"{{{{ '<arg_value{{}}>'.format(o) }}}}{_VALUE}"
            "{{ '</arg_value{}>'.format(o) }}\n",
            "{{ '</tool_call{}>'.format(o) }}\n",
        ),
        "{{ '</tool_calls{}>'.format(o) }}",
    ),
    "Kimi K3": (
        "<|open|>tools<|sep|>",
        keyed(
            f'<|open|>call tool="{_NAME}" index="{{{{ loop.index }}}}"<|sep|>',
            f'<|open|>argument key="{{{{ k }}}}" type="string"<|sep|>{_VALUE}'
            "<|close|>argument<|sep|>",
            "<|close|>call<|sep|>",
        ),
        "<|close|>tools<|sep|>",
    ),
    "LFM2": (
        "<|tool_call_start|>[",
        f"{_NAME}("
        + keyed("", "{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}", "")
        + "){{ ', ' if not loop.last }}",
        "]<|tool_call_end|>",
    ),
    "Gemma 4": (
        "",
        f"<|tool_call>call:{_NAME}{{{{ '{{' }}}}"
        + keyed(
            "",
            "{{ k }}:{{ '<|\"|>' + v + '<|\"|>' if v is string else v }}{{ ',' if not loop.last }}",
            "",
        )
        + "}<tool_call|>",
        "",
    ),
    "gpt-oss": (
        "",
        f"<|channel|>commentary to=functions.{_NAME} <|constrain|>json<|message|>{_JSON}<|call|>"
        "{{ '<|start|>assistant' if not loop.last }}",
        "",
    ),
    "gpt-oss with the recipient in the role": (
        "",
        f" to=functions.{_NAME}<|channel|>commentary json<|message|>{_JSON}<|call|>"
        "{{ '<|start|>assistant' if not loop.last }}",
        "",
    ),
}
CALLS = [("get_weather", {"city": 'Łódź\n"x"', "days": 3, "unit": "C"}), ("get_time", {})]


def message(calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    objects = [
        {"id": str(number), "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": objects}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_call_is_read_back(name: str) -> None:
    before, each, after = ROUND_TRIPS[name]
    calls = f"{before}{{% for c in m.tool_calls %}}{each}{{% endfor %}}{after}"
    template = _FRAME.replace("CALLS", calls)
    tokenizer = small_tokenizer(template=template)
    dialogue = dialogue_format(tokenizer, chat_format(tokenizer))
    assert (dialogue.form.name, dialogue.note) == (name.partition(" with ")[0], None)
    for wanted in (CALLS[:1], CALLS[1:], CALLS):
        prompt = dialogue.render([{"role": "user", "content": "Hi"}, message(wanted)], tools=TOOLS)
        answer = prompt.partition("<assistant>")[2].partition("</assistant>")[0]
        for size in (len(answer), 1, 3, 7):
            parser = dialogue.parser("", TOOLS)
            pieces = (answer[at : at + size] for at in range(0, len(answer), size))
            events = [event for piece in pieces for event in parser.feed(piece)]
            found = joined([*events, *parser.flush()])
            assert [(event[1], json.loads(event[2])) for event in found if len(event) > 2] == wanted
            assert len(found) == len(wanted)


def test_every_family_is_tried() -> None:
    tried = {name.partition(" with ")[0] for name in ROUND_TRIPS}
    assert tried == {form.name for form in FORMATS}


def test_a_notation_that_is_not_known_is_said_to_be_so() -> None:
    calls = "{% for c in m.tool_calls %}(call {{ c.function.name }} {{ args(c) }}){% endfor %}"
    tokenizer = small_tokenizer(template=_FRAME.replace("CALLS", calls))
    dialogue = dialogue_format(tokenizer, chat_format(tokenizer))
    assert dialogue.note is not None
    assert next(dialogue.facts()) == ("tool calls", dialogue.note)
