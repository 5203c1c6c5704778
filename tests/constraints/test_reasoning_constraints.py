"""Budgets of reasoning, grammars after reasoning and after a trigger, two constraints at once."""

import pytest
from walks import allowed_ids, follows, goes_on, may_end

from sharpi.constraints.answer_part import (
    AfterReasoning,
    AfterTrigger,
    ConstraintIntersection,
    InSequence,
    ReasoningBudget,
    within_answer,
)
from sharpi.constraints.grammars import Grammars
from sharpi.tokenizer.reasoning import THINK, ReasoningMarkers
from sharpi.tokenizer.tokenizer import Tokenizer

SPELLED = ReasoningMarkers("[T]", "</T>")  # no tokens of their own


@pytest.fixture(scope="module")
def grammars(gemma: Tokenizer) -> Grammars:
    return Grammars(gemma)


def forced_text(constraint: ReasoningBudget, tokenizer: Tokenizer) -> str:
    text = b""
    while (mask := constraint.allowed()) is not None:
        (token,) = allowed_ids(mask, tokenizer)
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
    return text.decode()


class TestBudget:
    @pytest.mark.parametrize("markers", [THINK, SPELLED])
    @pytest.mark.parametrize("budget", [0, 1, 5])
    def test_it_closes_after_so_many(
        self, gemma: Tokenizer, markers: ReasoningMarkers, budget: int
    ) -> None:
        constraint = ReasoningBudget(gemma, markers, budget, starts_inside=True)
        for _ in range(budget):
            assert constraint.allowed() is None
            constraint.accept(gemma.encode_inside("a")[0])
        assert forced_text(constraint, gemma) == markers.closing
        assert follows(constraint, gemma, markers.opening + "a" * 20)

    def test_it_counts_from_the_opening_marker_on(self, gemma: Tokenizer) -> None:
        constraint = ReasoningBudget(gemma, SPELLED, 2, starts_inside=False)
        assert follows(constraint, gemma, "\n [T]bb")
        assert forced_text(constraint, gemma) == "</T>"

    def test_who_closes_in_time_is_left_alone(self, gemma: Tokenizer) -> None:
        constraint = ReasoningBudget(gemma, THINK, 3, starts_inside=True)
        assert follows(constraint, gemma, "b")
        assert goes_on(constraint, gemma.id_of("</think>") or 0)
        assert follows(constraint, gemma, "b" * 9)

    def test_a_marker_within_the_answer_is_text(self, gemma: Tokenizer) -> None:
        constraint = ReasoningBudget(gemma, THINK, 0, starts_inside=False)
        assert follows(constraint, gemma, "b<think>bbb")


class TestAfterReasoning:
    @pytest.mark.parametrize("markers", [THINK, SPELLED])
    def test_the_answer_follows(
        self, gemma: Tokenizer, grammars: Grammars, markers: ReasoningMarkers
    ) -> None:
        inner = grammars.json_object()
        constraint = AfterReasoning(inner, gemma, markers, starts_inside=True)
        assert follows(constraint, gemma, "no JSON yet {" + markers.closing)
        assert not inner.may_end
        assert not follows(constraint, gemma, "b")
        assert follows(constraint, gemma, '{"b": 1}')
        assert may_end(constraint, gemma)

    def test_it_cannot_end_while_thinking(self, gemma: Tokenizer, grammars: Grammars) -> None:
        constraint = AfterReasoning(grammars.lark("start: "), gemma, THINK, starts_inside=True)
        assert not may_end(constraint, gemma)
        assert follows(constraint, gemma, "</think>")
        assert may_end(constraint, gemma)

    @pytest.mark.parametrize("markers", [THINK, SPELLED])
    def test_reasoning_may_come_first_or_not(
        self, gemma: Tokenizer, grammars: Grammars, markers: ReasoningMarkers
    ) -> None:
        for text in ('{"b": 1}', markers.opening + "b" + markers.closing + '{"b": 1}'):
            constraint = AfterReasoning(grammars.json_object(), gemma, markers, starts_inside=False)
            assert follows(constraint, gemma, text)
            assert may_end(constraint, gemma)
        constraint = AfterReasoning(grammars.json_object(), gemma, markers, starts_inside=False)
        assert not follows(constraint, gemma, "b")

    def test_no_token_carries_text_past_the_marker(
        self, gemma: Tokenizer, grammars: Grammars
    ) -> None:
        spelled = ReasoningMarkers("[T]", "</>")
        constraint = AfterReasoning(grammars.json_object(), gemma, spelled, starts_inside=True)
        assert goes_on(constraint, gemma.id_of("</") or 0)
        beyond = gemma.id_of(">a") or 0
        assert beyond not in allowed_ids(constraint.allowed(), gemma)
        assert goes_on(constraint, gemma.id_of(">") or 0)
        assert not goes_on(constraint, gemma.id_of("a") or 0)


class TestAfterTrigger:
    def test_text_is_free_up_to_the_trigger_and_after_the_call(
        self, gemma: Tokenizer, grammars: Grammars
    ) -> None:
        constraint = AfterTrigger(lambda: grammars.lark('start: "(" /[0-9]+/ ")"'), gemma, "call")
        for _ in range(2):
            assert follows(constraint, gemma, "a (free) text: call")
            assert not may_end(constraint, gemma)
            assert not goes_on(constraint, gemma.encode_inside("b")[0])
            assert follows(constraint, gemma, "(12)")
            assert may_end(constraint, gemma)

    def test_the_grammar_may_have_the_trigger(self, gemma: Tokenizer, grammars: Grammars) -> None:
        constraint = AfterTrigger(
            lambda: grammars.lark('start: <call> "b"'), gemma, "<call>", includes_trigger=True
        )
        assert follows(constraint, gemma, "a")
        assert goes_on(constraint, gemma.id_of("<call>") or 0)
        assert allowed_ids(constraint.allowed(), gemma) == set(gemma.encode_inside("b"))

    def test_once(self, gemma: Tokenizer, grammars: Grammars) -> None:
        constraint = AfterTrigger(lambda: grammars.lark('start: "b"'), gemma, "call", repeats=False)
        assert follows(constraint, gemma, "a callb")
        assert allowed_ids(constraint.allowed(), gemma) == gemma.end_ids


def test_one_comes_after_the_other(gemma: Tokenizer, grammars: Grammars) -> None:
    head = grammars.lark("start: /(?s:.*)/ <call>")
    constraint = InSequence(head, grammars.lark('start: "b"'))
    assert follows(constraint, gemma, "a\n")
    assert not may_end(constraint, gemma)
    assert goes_on(constraint, gemma.id_of("<call>") or 0)
    assert allowed_ids(constraint.allowed(), gemma) == set(gemma.encode_inside("b"))
    assert follows(constraint, gemma, "b")
    assert allowed_ids(constraint.allowed(), gemma) == gemma.end_ids


def test_both_hold(gemma: Tokenizer, grammars: Grammars) -> None:
    budget = ReasoningBudget(gemma, THINK, 2, starts_inside=True)
    answer = AfterReasoning(grammars.json_object(), gemma, THINK, starts_inside=True)
    constraint = ConstraintIntersection(budget, answer)
    assert follows(constraint, gemma, "bb")
    assert allowed_ids(constraint.allowed(), gemma) <= set(gemma.encode_inside("</think>"))
    assert follows(constraint, gemma, '</think>{"<think>": "<think>"}')
    assert may_end(constraint, gemma)


def test_where_an_answer_begins(gemma: Tokenizer, grammars: Grammars) -> None:
    opened = within_answer(grammars.json_object(), grammars, "Think!<think>\n")
    assert follows(opened, gemma, 'b</think>{"b": 1}')
    closed = within_answer(grammars.json_object(), grammars, "Answer!")
    assert follows(closed, gemma, '{"b": 1}')
