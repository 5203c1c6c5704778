"""What a call allows an answer to be: its form, a forced call, a budget of reasoning."""

from typing import TYPE_CHECKING

from sharpi.engine.constraint import Constraint
from sharpi.errors import GrammarError
from sharpi.serve.chat_call import AnswerShape, ChatCall
from sharpi.serve.errors import invalid_request

if TYPE_CHECKING:
    from sharpi.serve.chat_model import ChatModel


def shape_constraint(model: "ChatModel", shape: AnswerShape) -> Constraint | None:
    """The form of a text from its beginning; raises ApiError that names the parameter."""
    try:
        return _of_shape(model, shape)
    except GrammarError as error:
        raise invalid_request(str(error), param=shape.param) from None


def answer_constraint(model: "ChatModel", call: ChatCall, prompt: str) -> Constraint | None:
    """All that holds for the answer to `prompt`, from where reasoning has closed."""
    forced = model.dialogue.call_grammar(call.tools, call.choice)
    if forced is not None:
        return model.grammars.lark(forced)
    return shape_constraint(model, call.shape)


def _of_shape(model: "ChatModel", shape: AnswerShape) -> Constraint | None:
    match shape.kind:
        case "json_object":
            return model.grammars.json_object()
        case "json_schema":
            return model.grammars.json_schema(shape.value)
        case "grammar":
            is_gbnf = "::=" in shape.value
            return (model.grammars.gbnf if is_gbnf else model.grammars.lark)(shape.value)
    return None
