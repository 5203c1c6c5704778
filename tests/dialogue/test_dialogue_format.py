"""Conversations with tools, rendered by templates in the manner of popular models."""

import json
import re
from typing import Any

import pytest
from answers import CLOCK, FORMS, TOOLS, WEATHER, is_accepted, joined, small_tokenizer

from sharpi.dialogue.choose_format import FORMATS
from sharpi.dialogue.dialogue_format import DialogueFormat, dialogue_format
from sharpi.dialogue.formats.harmony import ANALYSIS
from sharpi.dialogue.tools import ToolChoice
from sharpi.errors import TemplateError
from sharpi.tokenizer.chat_template import ChatFormat, chat_format
from sharpi.tokenizer.reasoning import THINK

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content + '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)
LLAMA = (
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}{% if 'tool_calls' in m %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('single calls only') }}{% endif %}"
    "assistant {{ m.tool_calls[0].function | tojson }}\n"
    "{% elif m.role == 'tool' %}ipython {{ m.content }}\n"
    "{% else %}{{ m.role }} {{ m.content | trim }}\n{% endif %}{% endfor %}"
)
MISTRAL = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m.tool_calls is defined %}"
    "[TOOL_CALLS][{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}"
    "{{ c.function | tojson }}{{ c.id }}{% endfor %}]"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }} {{ m.tool_call_id }}"
    "{% elif m.role == 'user' %}"
    "{% if loop.previtem and loop.previtem.role == 'user' %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[INST]{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
DEEPSEEK = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    "{% for m in messages %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% endif %}"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}"
    "{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments }}"
    "<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}"
    "{% if m.role == 'assistant' and m.content is not none %}"
    "<｜Assistant｜>{{ m.content }}<end>{% endif %}"
    "{% if m.role == 'tool' %}<output>{{ m.content }}</output>{% endif %}"
    "{% endfor %}<｜Assistant｜>{% if thinking %}<think>{% else %}</think>{% endif %}"
)
GEMMA = (
    "{% for m in messages %}{% if m.role not in ('user', 'assistant') or"
    " (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no such role here') }}"
    "{% endif %}<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
)
KIMI = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'tool' %}"
    "## Return of {{ m.tool_call_id }}\n{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}"
    "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}"
    "<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}{% endfor %}"
)
GPT_OSS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}{% set message = m %}"
    "{% if message.content and message.thinking %}{{ raise_exception('not both') }}{% endif %}"
    "<|channel|>analysis<|message|>{{ message.content or message.thinking }}<|end|>"
    "<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json"
    "<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ '' + m.content }}<|end|>{% endif %}{% endfor %}"
    "<|start|>assistant"
)
USER = {"role": "user", "content": "Weather?"}
SYSTEM = {"role": "system", "content": "Be brief."}


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


CALLS = [call("call_1", "get_weather", {"city": "Łódź"}), call("call_2", "get_time", {})]
ASKED = {"role": "assistant", "content": None, "tool_calls": CALLS}
RESULTS = [
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "noon"}]},
]


def dialogue(template: str | None, **tokens: Any) -> DialogueFormat:
    tokenizer = small_tokenizer(template=template, **tokens)
    return dialogue_format(tokenizer, chat_format(tokenizer))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (QWEN, "Hermes"),
        (CHATML, "Hermes"),
        (LLAMA, "Llama 3"),
        (MISTRAL, "Mistral"),
        (DEEPSEEK, "DeepSeek V3.1"),
        (GPT_OSS, "gpt-oss"),
        (KIMI, "Kimi K2"),
        (None, "Hermes"),
        *(("".join(form.signs), form.name) for form in FORMATS),
    ],
)
def test_format_is_told_by_the_template(template: str | None, name: str) -> None:
    same = {"MiniMax M1": "Apriel", "Mistral older": "Mistral"}  # told by what a template renders
    assert dialogue(template).form.name == same.get(name, name)


def test_a_vocabulary_tells_where_the_template_shows_no_calls() -> None:
    marks = ("<|tool_call_start|>", "<|tool_call_end|>")
    assert dialogue(CHATML, control=marks).form.name == "LFM2"


def test_generations_are_told_apart() -> None:
    written = dialogue("[TOOL_CALLS][CALL_ID][ARGS]").form.write([("f", {})])
    assert written == "[TOOL_CALLS]f[CALL_ID]000000000[ARGS]{}"
    assert "```json" in dialogue("<｜tool▁calls▁begin｜>```json").form.write([("f", {})])
    assert "```json" not in dialogue(DEEPSEEK).form.write([("f", {})])


def test_control_tokens_are_shown_where_they_mark_calls() -> None:
    assert dialogue(MISTRAL, control=("[TOOL_CALLS]",)).shows_special
    assert not dialogue(MISTRAL).shows_special
    assert not dialogue(QWEN, shown=("<tool_call>", "</tool_call>")).shows_special


def test_a_template_with_tools() -> None:
    prompt = dialogue(QWEN).render([SYSTEM, USER, ASKED, *RESULTS], tools=TOOLS)
    assert prompt.startswith('<tools>{"type": "function", "function": {"name": "get_weather"')
    assert '"arguments": {"city": "Łódź"}}' in prompt
    assert "<|im_start|>tool\nnoon<|im_end|>" in prompt
    assert "None" not in prompt
    assert "# Tools" not in prompt


def test_choice_none_hides_the_tools() -> None:
    for template in (QWEN, CHATML):
        prompt = dialogue(template).render([USER], tools=TOOLS, choice=ToolChoice("none"))
        assert prompt == dialogue(template).render([USER])
        assert "get_weather" not in prompt


def test_developer_becomes_system_where_the_template_knows_no_better() -> None:
    developer = {"role": "developer", "content": "Be kind."}
    assert "<|im_start|>system\nBe kind." in dialogue(CHATML).render([developer])
    kept = dialogue(CHATML + "{# developer #}").render([developer])
    assert "<|im_start|>developer\nBe kind." in kept


def test_reasoning_is_kept() -> None:
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}
    assert "<think>Hm.</think>Hi." in dialogue(QWEN).render([USER, message])


def test_thinking_switch_has_both_names() -> None:
    assert "<think>" in dialogue(QWEN).render([USER], enable_thinking=False)
    assert dialogue(DEEPSEEK).render([USER], enable_thinking=True).endswith("<think>")
    assert dialogue(DEEPSEEK).render([USER], extra={"thinking": True}).endswith("<think>")
    assert dialogue(DEEPSEEK).render([USER]).endswith("</think>")


def test_a_template_without_tools_gets_an_instruction_and_text() -> None:
    prompt = dialogue(CHATML).render([SYSTEM, USER, ASKED, *RESULTS, USER], tools=TOOLS)
    system, user, assistant, results = prompt.split("<|im_start|>")[1:5]
    assert system.startswith("system\n# Tools")
    assert '{"name": "function_name", "arguments": {"argument_name": "value"}}' in system
    assert '"name": "get_time"' in system
    assert system.endswith("Be brief.<|im_end|>\n")
    assert user == "user\nWeather?<|im_end|>\n"
    assert assistant == f"assistant\n{written()}<|im_end|>\n"
    both = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"
    assert results == f"user\n{both}\nWeather?<|im_end|>\n"


def written() -> str:
    return FORMS["Hermes"].write([("get_weather", {"city": "Łódź"}), ("get_time", {})])


def test_a_template_without_system_messages() -> None:
    prompt = dialogue(GEMMA).render([SYSTEM, USER, ASKED, *RESULTS], tools=[CLOCK])
    assert prompt.startswith("<start_of_turn>user\n# Tools")
    assert "Be brief.\n\nWeather?<end_of_turn>" in prompt
    assert prompt.count("<start_of_turn>") == 3


def test_single_calls_take_turns_with_their_results() -> None:
    prompt = dialogue(LLAMA).render([USER, ASKED, *RESULTS])
    assert prompt == (
        'user Weather?\nassistant {"name": "get_weather", "arguments": {"city": "Łódź"}}\n'
        'ipython sunny\nassistant {"name": "get_time", "arguments": {}}\nipython noon\n'
    )


def test_calls_without_results_are_not_lost() -> None:
    prompt = dialogue(LLAMA).render([USER, ASKED, USER])
    assert prompt.count("assistant") == 2
    assert prompt.endswith("user Weather?\n")


def test_ids_of_nine_characters() -> None:
    ours = dialogue(MISTRAL).render([USER, ASKED, *RESULTS])
    first, second = re.findall(r"\}([0-9a-z]{9})(?=[{\]])", ours)
    assert f"[TOOL_RESULTS]sunny {first}[TOOL_RESULTS]noon {second}" in ours
    assert first != second
    assert "sunny" in dialogue(MISTRAL).render([USER, RESULTS[0]])  # its call was dropped
    kept = {**ASKED, "tool_calls": [call("abcDEF123", "get_time", {})]}
    assert "abcDEF123" in dialogue(MISTRAL).render([USER, kept])


def test_ids_that_name_the_tool() -> None:
    prompt = dialogue(KIMI).render([USER, ASKED, *RESULTS])
    assert 'functions.get_weather:0<|tool_call_argument_begin|>{"city": "Łódź"}' in prompt
    assert "## Return of functions.get_time:1\nnoon" in prompt


# Renders a system message at the beginning, then a user and an assistant in turn.
STRICT = (
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}[S]{{ messages[0].content }}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% if not rest %}{{ raise_exception('no user') }}{% endif %}"
    "{% for m in rest %}{% if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role[0] | upper }}]{{ m.content }}{% endfor %}"
)
# Shows the last system message alone, and loses the others without a word.
LAST_SYSTEM = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endif %}{% endfor %}[S]{{ ns.system }}"
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role[0] | upper }}]{{ m.content }}"
    "{% endif %}{% endfor %}"
)

NEVER_EMPTY = (
    "{% for m in messages %}{% if not m.content %}{{ raise_exception('empty') }}{% endif %}"
    "[{{ m.role[0] | upper }}]{{ m.content }}{% endfor %}"
)


def said(*turns: str) -> list[dict[str, Any]]:
    roles = {"S": "system", "U": "user", "A": "assistant"}
    return [{"role": roles[turn[0]], "content": turn[1:]} for turn in turns]


@pytest.mark.parametrize(
    ("template", "turns", "prompt"),
    [
        (STRICT, "S1 U2", "[S]1[U]2"),
        (STRICT, "S1 S2 U3", "[S]1\n\n2[U]3"),
        (STRICT, "S1 U2 A3 S4 U5", "[S]1[U]2[A]3[U]4\n\n5"),
        (STRICT, "U1 A2 S3", "[U]1[A]2[U]3"),
        (STRICT, "S1", "[U]1"),
        (STRICT, "U1 U2 A3 A4 U5", "[U]1\n\n2[A]3\n\n4[U]5"),
        (STRICT, "A1 U2", "[U][A]1[U]2"),
        (LAST_SYSTEM, "S1 U2 A3 S4", "[S]1[U]2[A]3[U]4"),
        (LAST_SYSTEM, "U1 U2 A3", "[S][U]1[U]2[A]3"),
        (NEVER_EMPTY, "U1 A U2", "[U]1[U]2"),
    ],
)
def test_messages_are_fitted_to_the_template(template: str, turns: str, prompt: str) -> None:
    assert dialogue(template).render(said(*turns.split())) == prompt


def test_what_a_template_holds_is_said() -> None:
    facts = list(dialogue(STRICT).facts())
    assert facts[0] == ("tool calls", "in the notation of Hermes")  # which an instruction teaches
    assert ("no place for", "user messages in a row: they are joined by a blank line") in facts
    said = {
        fact
        for template in (CHATML, QWEN, LLAMA, GPT_OSS)
        for _, fact in dialogue(template).facts()
    }
    assert said >= {
        "tools: the system message describes them",
        "calls and results: they are written as text",
        "several calls in a message: each is a message of its own",
        "reasoning beside a text and calls: the text ends the reasoning",
        "a list of texts: they are joined by a line break",
    }
    assert not any("message: " in fact for _, fact in dialogue(QWEN).facts())
    unknown = dialogue("{{ tools | tojson }}" + CHATML)
    assert unknown.note is not None
    assert next(unknown.facts()) == ("tool calls", unknown.note)
    assert dialogue(QWEN).note is None


def test_a_text_after_a_result_ends_the_result_where_the_template_takes_no_other() -> None:
    strict = MISTRAL.replace("== 'user' %}{{ raise", "in ('user', 'tool') %}{{ raise")
    prompt = dialogue(strict).render([USER, ASKED, *RESULTS, USER])
    assert "[TOOL_RESULTS]noon\n\nWeather? " in prompt


def test_a_text_beside_calls_is_not_lost() -> None:
    prompt = dialogue(LLAMA).render([USER, {**ASKED, "content": "I look."}, *RESULTS])
    assert prompt.startswith("user Weather?\nassistant I look.\nassistant {")


@pytest.mark.parametrize(
    ("shown", "between"),
    [
        ("{% for p in m.content %}{{ p.text }} {% endfor %}", " "),
        ("{{ m.content }}", "\n"),
        ("", "\n"),  # the template drops them
    ],
)
def test_parts_are_joined_as_the_template_joins_them(shown: str, between: str) -> None:
    template = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
        f"{{% else %}}{shown}{{% endif %}}{{% endfor %}}"
    )
    parts = [{"type": "text", "text": text} for text in ("One", "two")]
    assert dialogue(template).render([{"role": "user", "content": parts}]) == f"One{between}two"


def test_a_template_that_needs_tools_gets_an_empty_list() -> None:
    template = "{% for t in tools %}{{ t | tojson }}{% endfor %}" + CHATML
    assert "Weather?" in dialogue(template).render([USER])


def test_arguments_as_text_and_no_content() -> None:
    prompt = dialogue(DEEPSEEK).render([SYSTEM, USER, ASKED, *RESULTS], tools=TOOLS)
    assert '<｜tool▁sep｜>{"city": "Łódź"}<｜tool▁call▁end｜>' in prompt
    assert prompt.count("<｜Assistant｜>") == 1
    assert "<｜tool▁call▁begin｜>function_name<｜tool▁sep｜>" in prompt  # the instruction's sample
    assert prompt.index("# Tools") < prompt.index("Be brief.") < prompt.index("<｜User｜>")


def test_thinking_of_gpt_oss() -> None:
    message = {**ASKED, "reasoning_content": "Look it up."}
    prompt = dialogue(GPT_OSS).render([USER, message, *RESULTS])
    assert "analysis<|message|>Look it up.<|end|>" in prompt
    assert prompt.index("sunny") < prompt.index("functions.get_time") < prompt.index("noon")
    both = dialogue(GPT_OSS).render([USER, {**message, "content": "One moment."}])
    assert "analysis<|message|>Look it up.\n\nOne moment.<|end|>" in both


@pytest.mark.parametrize("content", [[{"type": "image_url"}], ["x"], 5])
def test_other_contents_than_text_are_refused(content: Any) -> None:
    with pytest.raises(TemplateError, match="only text"):
        dialogue(CHATML).render([{"role": "user", "content": content}])


@pytest.mark.parametrize("arguments", ["[1]", '{"a"', "no JSON"])
def test_arguments_that_are_no_object_are_shown_to_the_model(arguments: str) -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": arguments}}]
    for template in (CHATML, QWEN):
        prompt = dialogue(template).render([{"role": "assistant", "tool_calls": calls}])
        assert arguments.strip("[]") in prompt.replace('\\"', '"')


def test_plain_text_models() -> None:
    plain = dialogue(None)
    assert plain.render([SYSTEM, {"role": "assistant", "content": None}, USER]) == (
        "Be brief.\n\nWeather?"
    )
    assert "get_time" in plain.render([USER], tools=[CLOCK])


def test_reading_follows_the_prompt() -> None:
    format_ = dialogue(QWEN)
    parser = format_.parser("...<think>\n", TOOLS)
    events = [*parser.feed("Hm.\n</think>\n\nSee.\n"), *parser.feed(written()), *parser.flush()]
    assert joined(events) == [
        ("reasoning", "Hm."),
        ("text", "See."),
        ("call", "get_weather", '{"city": "Łódź"}'),
        ("call", "get_time", "{}"),
    ]
    assert format_.starts_inside("...<think>\n")
    assert not format_.starts_inside("...<think>\n\n</think>\n\n")


def test_markers_of_reasoning() -> None:
    assert dialogue(QWEN).reasoning == THINK
    assert dialogue(GPT_OSS).reasoning == ANALYSIS
    assert dialogue(CHATML).reasoning is None


def test_grammar_only_where_a_call_is_required() -> None:
    format_ = dialogue(QWEN)
    assert format_.call_grammar(TOOLS, ToolChoice()) is None
    assert format_.call_grammar((), ToolChoice("required")) is None
    required = format_.call_grammar(TOOLS, ToolChoice("required"))
    assert required is not None
    for blanks, is_right in (("", True), ("\n", True), ("\n\n", True), ("\n\n\n", False)):
        assert is_accepted(small_tokenizer(), required, blanks + written()) is is_right
    named = format_.call_grammar(TOOLS, ToolChoice("required", CLOCK.name))
    assert named is not None
    assert CLOCK.name in named
    assert WEATHER.name not in named


def test_chatml_fallback() -> None:
    tokenizer = small_tokenizer(control=("<|im_start|>",))
    format_ = dialogue_format(tokenizer, ChatFormat("chatml", CHATML))
    assert "# Tools" in format_.render([USER], tools=TOOLS)
