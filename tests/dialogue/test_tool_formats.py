"""Properties of every tool format: written calls are read again, and grammars force them."""

import json
from dataclasses import dataclass
from functools import cache

import pytest
from answers import CLOCK, TOOLS, WEATHER, is_accepted, read, small_tokenizer
from for_each import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.choose_format import FORMATS
from sharpi.dialogue.formats.gemma4 import Gemma4
from sharpi.dialogue.formats.harmony import ANALYSIS
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import THINK
from sharpi.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Case:
    form: ToolFormat
    is_control: bool = False  # whether the markers are control tokens
    is_single: bool = False  # whether the grammar allows one call only
    is_bare: bool = False  # whether a call can stand at the beginning only


_AS_TEXT = ("Hermes", "Qwen3-Coder", "GLM-4.5", "DeepSeek V3", "DeepSeek V3.1", "gpt-oss")
_SINGLE = ("Llama 3", "GigaChat 3", "gpt-oss")
CASES = {
    f"{number} {form.name}": Case(
        form,
        is_control=form.name not in _AS_TEXT,
        is_single=form.name in _SINGLE,
        is_bare=form.name in ("Llama 3", "gpt-oss"),
    )
    for number, form in enumerate(FORMATS)
    if form.signs != ("ipython",)
}
CASES["Gemma 4 with markers as text"] = Case(Gemma4())
HARMONY = next(case for name, case in CASES.items() if "gpt-oss" in name)
ONE = [("get_weather", {"city": 'Łódź\n"x"', "days": 3, "unit": "C"})]
TWO = [*ONE, ("get_time", {})]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@cache
def tokenizer_of(case: Case) -> Tokenizer:
    marks = case.form.markers
    return small_tokenizer(control=marks) if case.is_control else small_tokenizer(shown=marks)


def grammar_of(case: Case, tools: tuple[Tool, ...] = TOOLS, parallel: bool = True) -> tuple:
    tokenizer, marks = tokenizer_of(case), case.form.markers
    grammar = CallGrammar(tokenizer, marks)
    return tokenizer, grammar.text(case.form.expression(grammar, tools, parallel))


def calls_of(events: list) -> list:
    return [(event[1], json.loads(event[2])) for event in events if event[0] == "call"]


def test_written_calls_are_read(case: Case) -> None:
    events = read(case.form, [case.form.write(TWO)])
    assert calls_of(events) == TWO
    assert len(events) == 2


@pytest.mark.slow
@for_each("name", CASES)
@settings(max_examples=20)
@given(data=st.data())
def test_cuts_make_no_difference(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    before = "" if case.is_bare else "<think>Hm</think>\n\nLet <me see.\n"
    text = before + case.form.write(TWO)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(case.form, pieces) == read(case.form, [text]) == read(case.form, text)


@pytest.mark.slow
@for_each("name", CASES)
def test_any_beginning_of_an_answer_loses_nothing(name: str) -> None:
    """An answer that breaks off is text so far, or a call's arguments so far."""
    case = CASES[name]
    text = case.form.write(ONE)
    whole = calls_of(read(case.form, [text]))[0][0]
    for end in range(len(text)):
        events = read(case.form, [text[:end]])
        if events and events[0][0] == "call":
            assert [event[1] for event in events] == [whole]
        elif case is not HARMONY:
            assert events == ([("text", text[:end])] if end else [])


def test_without_tools_nothing_is_a_call(case: Case) -> None:
    events = read(case.form, [case.form.write(TWO)], tools=())
    assert [event[0] for event in events] == ["text"]
    if case is not HARMONY:
        assert events[0][1] == case.form.write(TWO)


def test_a_call_ends_reasoning_that_is_not_closed(case: Case) -> None:
    if case is HARMONY:  # whose channels do not nest
        return
    written = case.form.write(ONE)
    for closing in ("", "</think>Yes."):
        answer = f"<think>Hm.{written}{closing}"
        events = read(case.form, [answer], markers=THINK)
        assert events == read(case.form, list(answer), markers=THINK)
        kinds = [event[0] for event in events]
        if case.is_bare:  # without a marker nothing tells a call from reasoning
            assert kinds[0] == "reasoning"
        else:
            assert events[0] == ("reasoning", "Hm.")
            assert kinds[1] == "call"
            assert not closing or events[-1] == ("text", "Yes.")


def test_text_is_text(case: Case) -> None:
    text = "  if a < b: x = {'tool': [1]} # <tool_cal\n\n"
    assert read(case.form, text, markers=None) == [("text", text)]
    assert read(case.form, text, markers=ANALYSIS) == [("text", text)]


@pytest.mark.slow
@for_each("name", CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_stray_markers_lose_no_text(name: str, data: st.DataObject) -> None:
    """Words and markers that form no call are returned unchanged."""
    form = CASES[name].form
    if form is HARMONY.form:
        return
    marks = form.markers
    words = [*sorted(marks), "so ", "{", '{"name": ', "\n", "}", "[", "x"]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=7)))
    events = read(form, [text], tools=TOOLS, markers=None)
    if not any(event[0] == "call" for event in events):
        assert "".join(event[1] for event in events) == text


@pytest.mark.slow
def test_grammar_accepts_the_format(case: Case) -> None:
    tokenizer, grammar = grammar_of(case)
    assert is_accepted(tokenizer, grammar, case.form.write(ONE))
    assert is_accepted(tokenizer, grammar, case.form.write([("get_time", {})]))
    assert is_accepted(tokenizer, grammar, case.form.write(TWO)) is not case.is_single


@pytest.mark.slow
def test_grammar_of_one_call(case: Case) -> None:
    tokenizer, grammar = grammar_of(case, parallel=False)
    assert is_accepted(tokenizer, grammar, case.form.write(ONE))
    assert not is_accepted(tokenizer, grammar, case.form.write(TWO))


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ("get_whether", {"city": "x"}),
        ("get_weather", {"town": "x"}),
        ("get_weather", {"city": "x", "days": "three"}),
        ("get_weather", {"city": "x", "unit": "K"}),
        ("get_weather", {"days": 3}),
    ],
)
def test_grammar_refuses_what_no_tool_takes(case: Case, call: tuple) -> None:
    tokenizer, grammar = grammar_of(case)
    assert not is_accepted(tokenizer, grammar, case.form.write([call]))
    assert not is_accepted(tokenizer, grammar, "Hello.")


def test_grammar_of_a_named_tool(case: Case) -> None:
    tokenizer, grammar = grammar_of(case, (CLOCK,))
    assert is_accepted(tokenizer, grammar, case.form.write([("get_time", {})]))
    assert not is_accepted(tokenizer, grammar, case.form.write(ONE))
    assert WEATHER.name not in grammar
