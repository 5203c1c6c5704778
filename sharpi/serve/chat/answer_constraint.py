"""Builds the constraint on an answer from its tools, its required form and its reasoning budget."""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from sharpi.constraints.answer_part import (
    AfterReasoning,
    AfterTrigger,
    ConstraintIntersection,
    within_answer,
)
from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.grammars import Grammars
from sharpi.constraints.json_schema import OPTIONS, rewritten_schema
from sharpi.constraints.reasoning_budget import ReasoningBudget
from sharpi.dialogue.dialogue_format import DialogueFormat
from sharpi.dialogue.tools import Tool
from sharpi.errors import GrammarError
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall
from sharpi.serve.http.errors import invalid_request
from sharpi.tokenizer.tokenizer import Tokenizer

_START = "start: "
_log = logging.getLogger(__name__)


class ConstrainedModel(Protocol):
    """The interface of a model that building constraints needs."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def dialogue(self) -> DialogueFormat:
        """The model's format of reasoning and tool calls."""

    @property
    def grammars(self) -> Grammars:
        """The compiler of grammars; its first use is slow, because it builds tables."""


def call_constraint(model: ConstrainedModel, call: ChatCall, prompt: str) -> Constraint | None:
    """Returns the constraint of the tools, which applies after reasoning; None without one.

    Raises ApiError for an unsupported schema or combination.
    """
    constraint = _of_answer(model, call)
    markers = model.dialogue.reasoning
    if constraint is None or markers is None or not may_reason(model, call, prompt):
        return constraint
    starts_inside = model.dialogue.starts_inside(prompt)
    return AfterReasoning(constraint, model.tokenizer, markers, starts_inside)


def may_reason(model: ConstrainedModel, call: ChatCall, prompt: str) -> bool:
    """Returns whether the model may reason before its answer to `prompt`."""
    is_format = model.dialogue.form.reasoning is not None
    return call.enable_thinking is not False or is_format or model.dialogue.starts_inside(prompt)


def _of_answer(model: ConstrainedModel, call: ChatCall) -> Constraint | None:
    if not call.tools or call.choice.mode == "none":
        return None
    if call.choice.mode == "required":
        return _compiled(model, _grammar(model, call, call.choice.parallel))
    if call.shape.kind != "text":
        return _compiled(model, _call_or_shape(model, call))
    return _strict(model, call) if call.has_strict_calls else None


def _grammar(model: ConstrainedModel, call: ChatCall, parallel: bool) -> str:
    """Returns the Lark grammar of an answer that is one tool call, or several with `parallel`."""
    choice = replace(call.choice, mode="required", parallel=parallel)
    return model.dialogue.call_grammar(_enforced(call.tools), choice) or ""


def _enforced(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Returns the tools with their schemas rewritten into keywords that llguidance enforces."""
    try:
        return tuple(replace(each, parameters=rewritten_schema(each.parameters)) for each in tools)
    except GrammarError as error:
        raise invalid_request(f"a tool's parameters: {error}", param="tools") from None


def _call_or_shape(model: ConstrainedModel, call: ChatCall) -> str:
    """Returns the Lark grammar of an answer that is either tool calls or JSON.

    Raises ApiError if the text must match a grammar, or the model's format does not allow both.
    """
    if call.shape.kind == "grammar" or model.dialogue.form.reasoning is not None:
        raise invalid_request(
            "with this model or grammar, an answer cannot both have a format and call tools",
            param=call.shape.param,
        )
    calls, _, rules = _grammar(model, call, call.choice.parallel).partition("\n")
    schema = json.dumps(_shape_schema(call), ensure_ascii=False)
    return f"{_START}({calls.removeprefix(_START)}) | answer\n{rules}\nanswer: %json {schema}\n"


def _shape_schema(call: ChatCall) -> Mapping[str, Any]:
    try:
        schema = rewritten_schema(call.shape.value or {"type": "object"})
    except GrammarError as error:
        raise invalid_request(str(error), param=call.shape.param) from None
    return {**schema, "x-guidance": OPTIONS}


def _strict(model: ConstrainedModel, call: ChatCall) -> Constraint | None:
    """Returns a constraint that applies from the begin marker of a tool call to its end.

    Text outside of calls is not constrained. Returns None if the model's format has no such marker.
    """
    form = model.dialogue.form
    written = form.write([(call.tools[0].name, {})])
    marker = next((mark for mark in form.markers if written.startswith(mark)), None)
    if marker is None:
        return None
    grammar = _grammar(model, call, parallel=False)
    ready = [_compiled(model, grammar)]
    return AfterTrigger(
        lambda: ready.pop() if ready else model.grammars.lark(grammar, is_json=True),
        model.tokenizer,
        marker,
        includes_trigger=True,
        repeats=call.choice.parallel,
    )


def _compiled(model: ConstrainedModel, grammar: str) -> GrammarConstraint:
    try:
        return _logged(model.grammars.lark(grammar, is_json=True))
    except GrammarError as error:
        raise invalid_request(f"a tool's parameters: {error}", param="tools") from None


def answer_constraint(model: ConstrainedModel, call: ChatCall, prompt: str) -> Constraint | None:
    """Returns the combined constraint on the answer to `prompt`; None without any.

    Raises ApiError, which names the invalid parameter.
    """
    answer = call_constraint(model, call, prompt) if call.tools else None
    if answer is None:
        answer = _shaped(model, call, prompt)
    budget = _budget(model, call, prompt)
    if answer is None or budget is None:
        return answer or budget
    return ConstraintIntersection(answer, budget)


def _shaped(model: ConstrainedModel, call: ChatCall, prompt: str) -> Constraint | None:
    shape = shape_constraint(model, call.shape)
    if shape is None or not may_reason(model, call, prompt):
        return shape
    return within_answer(shape, model.tokenizer, prompt)


def shape_constraint(model: ConstrainedModel, shape: AnswerShape) -> GrammarConstraint | None:
    """Returns the constraint of a schema or grammar on a text; None if any text is allowed.

    It applies from the first token on. Raises ApiError, which names the invalid parameter.
    """
    try:
        constraint = _of_shape(model, shape)
    except GrammarError as error:
        raise invalid_request(str(error), param=shape.param) from None
    return None if constraint is None else _logged(constraint)


def _logged(constraint: GrammarConstraint) -> GrammarConstraint:
    """Returns a constraint; the log says which parts of its schemas it does not enforce."""
    if constraint.note:
        _log.warning("note: %s", constraint.note)
    return constraint


def _budget(model: ConstrainedModel, call: ChatCall, prompt: str) -> Constraint | None:
    """Returns a constraint that ends reasoning after the budget; None without a budget.

    The budget is 0 tokens if thinking is off, even if the chat template begins reasoning.
    """
    markers = model.dialogue.reasoning
    budget = 0 if call.enable_thinking is False else call.thinking_budget
    if markers is None or budget is None:
        return None
    starts_inside = model.dialogue.starts_inside(prompt)
    return ReasoningBudget(model.tokenizer, markers, budget, starts_inside)


def _of_shape(model: ConstrainedModel, shape: AnswerShape) -> GrammarConstraint | None:
    match shape.kind:
        case "json_object":
            return model.grammars.json_object()
        case "json_schema":
            return _of_schema(model, shape)
        case "grammar":
            is_gbnf = "::=" in shape.value
            return (model.grammars.gbnf if is_gbnf else model.grammars.lark)(shape.value)
    return None


def _of_schema(model: ConstrainedModel, shape: AnswerShape) -> GrammarConstraint:
    if shape.wanted is not None:
        with contextlib.suppress(GrammarError):
            return model.grammars.json_schema(shape.wanted)
    return model.grammars.json_schema(shape.value)
