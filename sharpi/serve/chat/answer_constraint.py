"""Builds the constraint on an answer from its tools, its required form and its reasoning budget."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sharpi.constraints.answer_part import (
    AfterReasoning,
    AfterTrigger,
    ConstraintIntersection,
    ReasoningBudget,
    answer_opening,
    harmony_final,
    harmony_reasoning,
    within_answer,
)
from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.grammars import Grammars
from sharpi.constraints.json_schema import OPTIONS, rewritten_schema
from sharpi.dialogue.dialogue_format import DialogueFormat
from sharpi.dialogue.formats.harmony import Harmony
from sharpi.dialogue.tools import Tool
from sharpi.errors import GrammarError
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall
from sharpi.serve.http.errors import invalid_request

_START = "start: "
_ANY_OBJECT = {"type": "object"}
_MAX_FAULTY = 32  # tools that are looked at one by one, each for up to 2 s


def shape_constraint(grammars: Grammars, shape: AnswerShape) -> GrammarConstraint | None:
    """Returns the constraint of a form on a text, None for any; raises ApiError with `param`."""
    try:
        match shape.kind:
            case "json_object":
                return grammars.json_object()
            case "json_schema":
                return _of_schema(grammars, shape)
            case "grammar":
                is_gbnf = "::=" in shape.value
                return (grammars.gbnf if is_gbnf else grammars.lark)(shape.value)
    except GrammarError as error:
        raise invalid_request(str(error), param=shape.param) from None
    return None


def notes_of(constraint: GrammarConstraint | None) -> tuple[str, ...]:
    """Returns the line that names what a constraint does not enforce, if there is any."""
    return (constraint.note,) if constraint is not None and constraint.note else ()


def _of_schema(grammars: Grammars, shape: AnswerShape) -> GrammarConstraint:
    if shape.wanted is not None:
        with contextlib.suppress(GrammarError):
            return grammars.json_schema(shape.wanted)
    return grammars.json_schema(shape.value)


class AnswerConstraint:
    """Builds the constraint on an answer; `notes` then name what is not enforced."""

    def __init__(
        self, grammars: Grammars, dialogue: DialogueFormat, call: ChatCall, prompt: str
    ) -> None:
        self._grammars, self._tokenizer, self._dialogue = grammars, grammars.tokenizer, dialogue
        self._call, self._prompt = call, prompt
        self._is_harmony = isinstance(dialogue.form, Harmony)
        self._starts_inside = dialogue.starts_inside(prompt)
        self.notes: list[str] = []

    def build(self) -> Constraint | None:
        """Returns the combined constraint, None without any; raises ApiError with the parameter."""
        answer = self._of_calls() or self._of_shape()
        budget = self._budget()
        if answer is None or budget is None:
            return answer or budget
        return ConstraintIntersection(answer, budget)

    @property
    def _may_reason(self) -> bool:
        is_always = self._dialogue.form.reasoning is not None
        return self._call.thinking.is_enabled is not False or is_always or self._starts_inside

    def _of_calls(self) -> Constraint | None:
        """Returns the constraint of the tools, which applies after reasoning; None without one."""
        constraint, markers = self._calls(), self._dialogue.reasoning
        if constraint is None or markers is None or self._is_harmony or not self._may_reason:
            return constraint
        return AfterReasoning(constraint, self._tokenizer, markers, self._starts_inside)

    def _calls(self) -> Constraint | None:
        call = self._call
        if not call.tools or call.choice.mode == "none":
            return None
        if call.choice.mode == "required":
            calls = self._grammar(call.choice.parallel).removeprefix(_START)
            reasoning = harmony_reasoning(self._tokenizer) if self._is_harmony else ""
            return self._compiled(f"{_START}{reasoning} {calls}")
        if call.shape.kind != "text":
            return self._compiled(self._call_or_shape())
        return self._strict() if call.has_strict_calls else None

    def _grammar(self, parallel: bool) -> str:
        """Returns the Lark grammar of calls; unusable schemas of tools become any object."""
        tools = self._call.tools
        if not self._is_usable(tools, parallel):
            tools = tuple(
                each if i < _MAX_FAULTY and self._is_usable([each], parallel) else self._freed(each)
                for i, each in enumerate(tools)
            )
        return self._written(tools, parallel)

    def _is_usable(self, tools: Sequence[Tool], parallel: bool) -> bool:
        """Returns whether calls of tools can be enforced; raises ApiError for strict tools."""
        try:
            self._grammars.lark(self._written(tools, parallel), is_json=True)
        except GrammarError as error:
            if self._call.has_strict_calls:
                message = f"a tool's parameters: {error}"
                raise invalid_request(message, param="tools") from None
            return False
        return True

    def _freed(self, tool: Tool) -> Tool:
        self.notes.append(f"not enforced in a required call: the parameters of {tool.name[:64]}")
        return replace(tool, parameters=_ANY_OBJECT)

    def _written(self, tools: Sequence[Tool], parallel: bool) -> str:
        choice = replace(self._call.choice, mode="required", parallel=parallel)
        tools = [replace(each, parameters=rewritten_schema(each.parameters)) for each in tools]
        return self._dialogue.call_grammar(tools, choice) or _START

    def _call_or_shape(self) -> str:
        """Returns the Lark grammar of an answer that is either tool calls or JSON."""
        shape = self._call.shape
        if shape.kind == "grammar":
            raise invalid_request(
                "an answer cannot both have a grammar and call tools", param=shape.param
            )
        calls, _, rules = self._grammar(self._call.choice.parallel).partition("\n")
        schema = json.dumps(_shape_schema(shape), ensure_ascii=False)
        tokenizer, before = self._tokenizer, ""
        opening = answer_opening(tokenizer, self._dialogue.reasoning, self._prompt)
        if self._is_harmony:
            before, opening = harmony_reasoning(tokenizer), harmony_final(tokenizer)
        return (
            f"{_START}{before} (({calls.removeprefix(_START)}) | {opening} answer)\n"
            f"{rules}\nanswer: %json {schema}\n"
        )

    def _strict(self) -> Constraint | None:
        """Returns a constraint of calls, each from its begin marker on; None without markers."""
        form = self._dialogue.form
        written = form.write([(self._call.tools[0].name, {})])
        marker = next((mark for mark in form.markers if written.startswith(mark)), None)
        if marker is None:
            return None
        if self._is_harmony:  # whose marker begins other messages, too
            marker = written.partition("functions.")[0]
        grammar = self._grammar(parallel=False)
        ready = [self._compiled(grammar)]
        return AfterTrigger(
            lambda: ready.pop() if ready else self._grammars.lark(grammar, is_json=True),
            self._tokenizer,
            marker,
            includes_trigger=True,
            repeats=self._call.choice.parallel,
        )

    def _compiled(self, grammar: str) -> GrammarConstraint:
        try:
            return self._noted(self._grammars.lark(grammar, is_json=True))
        except GrammarError as error:
            raise invalid_request(f"a tool's parameters: {error}", param="tools") from None

    def _of_shape(self) -> Constraint | None:
        shape = shape_constraint(self._grammars, self._call.shape)
        if shape is None or not self._may_reason:
            return shape and self._noted(shape)
        markers = self._dialogue.reasoning
        return within_answer(self._noted(shape), self._grammars, self._prompt, markers)

    def _noted(self, constraint: GrammarConstraint) -> GrammarConstraint:
        self.notes += notes_of(constraint)
        return constraint

    def _budget(self) -> Constraint | None:
        """Returns a constraint that ends reasoning after the budget; 0 if thinking is off."""
        markers, thinking = self._dialogue.reasoning, self._call.thinking
        budget = 0 if thinking.is_enabled is False else thinking.budget
        if markers is None or budget is None:
            return None
        return ReasoningBudget(self._tokenizer, markers, budget, self._starts_inside)


def _shape_schema(shape: AnswerShape) -> Mapping[str, Any]:
    try:
        schema = rewritten_schema(shape.value or _ANY_OBJECT)
    except GrammarError as error:
        raise invalid_request(str(error), param=shape.param) from None
    return {**schema, "x-guidance": OPTIONS}
