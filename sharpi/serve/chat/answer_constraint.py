"""Builds the constraint on an answer from its tools, its required form and its reasoning budget."""

import contextlib

from sharpi.constraints.answer_part import within_answer
from sharpi.constraints.both import Both
from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.reasoning_budget import ReasoningBudget
from sharpi.errors import GrammarError
from sharpi.serve.chat.call_constraint import ConstrainedModel, call_constraint, may_reason
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall
from sharpi.serve.http.errors import invalid_request


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
    return Both(answer, budget)


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
        return _of_shape(model, shape)
    except GrammarError as error:
        raise invalid_request(str(error), param=shape.param) from None


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
