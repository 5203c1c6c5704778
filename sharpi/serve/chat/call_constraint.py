"""What tools ask of an answer: a call that must be, one that may be, or one instead of a form."""

import json
from typing import Protocol

from msgspec.structs import replace

from sharpi.constraints.after_reasoning import AfterReasoning
from sharpi.constraints.after_trigger import AfterTrigger
from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.grammars import Grammars
from sharpi.dialogue.dialogue_format import DialogueFormat
from sharpi.errors import GrammarError
from sharpi.serve.chat.chat_call import ChatCall
from sharpi.serve.http.errors import invalid_request
from sharpi.tokenizer.tokenizer import Tokenizer

_START = "start: "


class ConstrainedModel(Protocol):
    """What the constraints of an answer need of the model that gives it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens."""

    @property
    def dialogue(self) -> DialogueFormat:
        """How it reasons and calls tools."""

    @property
    def grammars(self) -> Grammars:
        """Constraints over its tokens; the first need makes them, which takes a while."""


def call_constraint(model: ConstrainedModel, call: ChatCall, prompt: str) -> Constraint | None:
    """From where reasoning has closed; None where the tools ask nothing. Raises ApiError."""
    constraint = _of_answer(model, call)
    markers = model.dialogue.reasoning
    if constraint is None or markers is None or not may_reason(model, call, prompt):
        return constraint
    starts_inside = model.dialogue.starts_inside(prompt)
    return AfterReasoning(constraint, model.tokenizer, markers, starts_inside)


def may_reason(model: ConstrainedModel, call: ChatCall, prompt: str) -> bool:
    """Whether reasoning may come before the answer to `prompt`."""
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
    """That of an answer that is a call, or with `parallel` several."""
    choice = replace(call.choice, mode="required", parallel=parallel)
    return model.dialogue.call_grammar(call.tools, choice) or ""


def _call_or_shape(model: ConstrainedModel, call: ChatCall) -> str:
    """Calls, or else JSON; raises ApiError where the two cannot be told apart."""
    if call.shape.kind == "grammar" or model.dialogue.form.reasoning is not None:
        raise invalid_request(
            "an answer cannot be of a form and may call tools, too, with this model or grammar",
            param=call.shape.param,
        )
    calls, _, rules = _grammar(model, call, call.choice.parallel).partition("\n")
    schema = json.dumps(call.shape.value or {"type": "object"}, ensure_ascii=False)
    return f"{_START}({calls.removeprefix(_START)}) | answer\n{rules}\nanswer: %json {schema}\n"


def _strict(model: ConstrainedModel, call: ChatCall) -> Constraint | None:
    """Text is free, and calls follow their schemas from the marker on that begins one.

    Formats without such a marker are left alone.
    """
    form = model.dialogue.form
    written = form.write([(call.tools[0].name, {})])
    marker = next((mark for mark in form.marks if written.startswith(mark)), None)
    if marker is None:
        return None
    grammar = _grammar(model, call, parallel=False)
    ready = [_compiled(model, grammar)]
    return AfterTrigger(
        lambda: ready.pop() if ready else model.grammars.lark(grammar),
        model.tokenizer,
        marker,
        includes_trigger=True,
        repeats=call.choice.parallel,
    )


def _compiled(model: ConstrainedModel, grammar: str) -> GrammarConstraint:
    try:
        return model.grammars.lark(grammar)
    except GrammarError as error:
        raise invalid_request(f"a tool's parameters: {error}", param="tools") from None
