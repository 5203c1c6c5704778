"""Chat templates in the style of popular models, and the functions that they may use."""

import json
import re
from typing import Any

import pytest
from larger_vocabulary import with_tokens
from msgspec.structs import replace

from sharpi.errors import TemplateError
from sharpi.tokenizer.chat_template import ChatFormat, chat_format
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello."}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "caf\u00e9 <b>"}}]

THINKING_CHATML = """
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
HEADERS = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
INSTRUCTIONS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant!') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system is defined %}
            {{- ' [INST] ' + system + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {%- generation %}{{- ' ' + message['content'] + eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
"""
NO_SYSTEM = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' ~ role ~ '\n' ~ message['content'] | trim ~ '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MACROS = """{%- macro turn(role, text, last=false) -%}
<{{ role }}>{{ text | upper if role == 'system' else text }}{{ '' if last else '|' }}
{%- endmacro -%}
{%- for m in messages if m.content -%}
{%- if m.role == 'tool' %}{% continue %}{% endif -%}
{{ turn(m.role, m.content, loop.last) }}
{%- endfor -%}"""


def render(source: str, *messages: dict[str, Any], **options: Any) -> str:
    return ChatFormat("template", source, TOKENS).render(list(messages), **options)


class TestTemplates:
    def test_chatml_with_thinking(self) -> None:
        assert render(THINKING_CHATML, SYSTEM, USER) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert render(THINKING_CHATML, USER, enable_thinking=False).endswith(
            "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        assert render(THINKING_CHATML, USER, enable_thinking=True).endswith("assistant\n")

    def test_old_reasoning_is_dropped(self) -> None:
        thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello."}
        text = render(THINKING_CHATML, USER, thought, USER, add_generation_prompt=False)
        assert "hm" not in text
        assert "<|im_start|>assistant\nHello.<|im_end|>\n" in text

    def test_tools_are_json_without_html_escapes(self) -> None:
        text = render(THINKING_CHATML, USER, tools=TOOLS)
        line = text.split("# Tools\n")[1].split("<|im_end|>")[0]
        assert line == json.dumps(TOOLS[0], ensure_ascii=False)

    def test_headers(self) -> None:
        assert render(HEADERS, SYSTEM, USER) == (
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        )

    def test_instructions(self) -> None:
        text = render(INSTRUCTIONS, SYSTEM, USER, ASSISTANT, USER)
        assert text == "<s> [INST] Be brief.\n\nHi [/INST] Hello.</s> [INST] Hi [/INST]"

    def test_turns_without_a_system_role(self) -> None:
        text = render(NO_SYSTEM, USER, ASSISTANT, USER)
        assert text == (
            "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
            "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        )

    def test_macros_loop_controls_and_conditions(self) -> None:
        tool = {"role": "tool", "content": "42"}
        text = render(MACROS, SYSTEM, USER, tool, {"role": "user", "content": ""}, ASSISTANT)
        assert text == "<system>BE BRIEF.|<user>Hi|<assistant>Hello."

    @pytest.mark.parametrize(
        ("source", "messages", "words"),
        [
            (NO_SYSTEM, [SYSTEM, USER], "System role not supported"),
            (INSTRUCTIONS, [ASSISTANT], "Roles must alternate user/assistant!"),
        ],
    )
    def test_a_refusal_is_passed_on(self, source: str, messages: list[Any], words: str) -> None:
        with pytest.raises(TemplateError, match=re.escape(f"refuses the messages: {words}")):
            render(source, *messages)


class TestSurroundings:
    def test_blocks_are_trimmed(self) -> None:
        assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"

    def test_tools_and_documents_are_defined(self) -> None:
        assert render("{{ tools is none }} {{ documents is none }}") == "True True"
        assert render("{{ enable_thinking is defined }}") == "False"

    def test_extra_variables(self) -> None:
        assert render("{{ mood }}", extra={"mood": "calm"}) == "calm"

    def test_date(self) -> None:
        assert re.fullmatch(r"\d\d \w+ \d{4}", render("{{ strftime_now('%d %b %Y') }}"))

    def test_formatting(self) -> None:
        source = "{{ '%02d|%s' % (7, 'x') }} {{ '{:>4}'.format('ab') }} {{ '%s' | format(1) }}"
        assert render(source) == "07|x   ab 1"

    def test_string_methods_and_filters(self) -> None:
        source = (
            "{{ 'a-b'.split('-') | join('+') }}{{ 'abab'.replace('a', 'x') }}{{ [3, 1] | sort }}"
            "{{ '-'.join(['p', 'q']) }}{{ messages | map(attribute='role') | list }}"
            "{{ [1, 2] | sum }}{{ ' a' * 2 }}{{ 2 ** 10 }}{{ ('x', 'y') | first }}"
        )
        assert render(source, USER) == "a+bxbxb[1, 3]p-q['user']3 a a1024x"

    def test_tojson_options(self) -> None:
        assert render("{{ {'b': [1], 'a': none} | tojson(indent=1, sort_keys=true) }}") == (
            '{\n "a": null,\n "b": [\n  1\n ]\n}'
        )

    def test_loop_knows_its_length(self) -> None:
        source = (
            "{% for x in 'abc' %}{{ loop.length }}{{ loop.last }}{{ loop.nextitem }} {% endfor %}"
        )
        assert render(source) == "3Falseb 3Falsec 3True "

    def test_messages_stay_as_they_were(self) -> None:
        message = dict(USER)
        with pytest.raises(TemplateError):
            render("{{ messages[0].update(content='x') }}", message)
        assert message == USER

    @pytest.mark.parametrize(
        "source", ["{% if %}", "{{ 1 / 0 }}", "{{ x.y }}", "{% include 'a' %}"]
    )
    def test_an_error_is_one_line(self, source: str) -> None:
        with pytest.raises(TemplateError) as caught:
            render(source)
        assert "\n" not in str(caught.value)
        assert "--raw" in str(caught.value)

    def test_a_refusal_cannot_steer_the_terminal(self) -> None:
        with pytest.raises(TemplateError) as caught:
            render("{{ raise_exception('a\\n\x1b[2Jb') }}")
        assert str(caught.value).isprintable()


class TestChoice:
    def test_own_template(self, byte_level: Vocabulary) -> None:
        vocabulary = replace(byte_level, chat_template="{{ bos_token }}{{ eos_token }}")
        own = chat_format(Tokenizer(vocabulary))
        assert (own.kind, own.render([USER])) == ("template", "<s></s>")

    def test_template_for_tools(self, byte_level: Vocabulary) -> None:
        vocabulary = replace(
            byte_level, chat_template="plain", other_templates={"tool_use": "with tools"}
        )
        own = chat_format(Tokenizer(vocabulary))
        assert own.render([USER]) == "plain"
        assert own.render([USER], tools=TOOLS) == "with tools"

    def test_chatml_where_the_vocabulary_has_it(self, byte_tokenizer: Tokenizer) -> None:
        chatml = chat_format(byte_tokenizer)
        assert chatml.kind == "chatml"
        assert chatml.render([SYSTEM, USER]) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert chatml.render([ASSISTANT], add_generation_prompt=False) == (
            "<|im_start|>assistant\nHello.<|im_end|>\n"
        )

    def test_plain_text_otherwise(self) -> None:
        plain = chat_format(Tokenizer(Vocabulary("gpt2", tokens=["a"], kinds=[1])))
        assert plain.kind == "plain"
        assert plain.render([USER]) == "Hi"
        assert plain.render([USER, ASSISTANT]) == "Hi\nHello."

    def test_one_mark_alone_is_not_chatml(self) -> None:
        lone = with_tokens(Vocabulary("gpt2"), "<|im_start|>", kind=3)
        assert chat_format(Tokenizer(lone)).kind == "plain"

    def test_bos_of_a_template_is_not_doubled(self, byte_level: Vocabulary) -> None:
        tokenizer = Tokenizer(replace(byte_level, chat_template=HEADERS, add_bos=True))
        text = chat_format(tokenizer).render([USER])
        ids = tokenizer.encode(text, add_bos=True, parse_special=True)
        assert ids.count(tokenizer.bos_id) == 1
