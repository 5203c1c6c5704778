"""Messages to the text a model was trained on: the file's own template, ChatML, or plain text.

A template is a program from a stranger. It runs in jinja2's sandbox, which keeps it from Python's
attributes, and under limits of output, of string sizes and of time.
"""

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from types import FrameType
from typing import Any, Literal, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sharpi.errors import TemplateError
from sharpi.tokenizer.tokenizer import Tokenizer

Message = Mapping[str, Any]
Kind = Literal["template", "chatml", "plain"]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CHATML_MARK = "<|im_start|>"
_MAX_OUTPUT = 8 << 20
_MAX_REPEATED = 1 << 20
_MAX_SECONDS = 5


class _GenerationTag(Extension):
    """Accepts transformers' `{% generation %}` around assistant text, which changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox with bounds on what grows: repeated strings, powers, padding by format."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for text, count in ((left, right), (right, left)):
                if isinstance(text, str | list | tuple) and isinstance(count, int):
                    self._bound(len(text) * count)
        elif operator == "**" and isinstance(right, int | float):
            self._bound(abs(right) * 1024)
        elif operator == "%" and isinstance(left, str):
            raise TemplateError("the chat template formats strings with %, which is not allowed")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        for argument in args:  # "".ljust(10**9), "{:9999999}".format()
            if isinstance(argument, int):
                __self._bound(argument)
        if getattr(__obj, "__name__", "") in ("format", "format_map"):
            raise TemplateError("the chat template formats strings, which is not allowed")
        return super().call(__context, __obj, *args, **kwargs)

    @staticmethod
    def _bound(size: float) -> None:
        if size > _MAX_REPEATED:
            raise TemplateError("the chat template builds an enormous value")


class ChatFormat:
    """How a model wants its messages; `kind` says where the format comes from."""

    def __init__(self, source: str | None, kind: Kind, tokens: Mapping[str, str]) -> None:
        self.source, self.kind = source, kind
        self._tokens = tokens

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The prompt text; raises TemplateError with the template's own words where it has some."""
        if self.kind == "plain":
            return "\n".join(str(message.get("content", "")) for message in messages)
        values: dict[str, Any] = {**self._tokens, **extra, "messages": list(messages)}
        values.update(tools=list(tools) if tools else None)
        values.update(add_generation_prompt=add_generation_prompt)
        if enable_thinking is not None:
            values.update(enable_thinking=enable_thinking)
        with _in_words():
            return _joined(self._template.generate(values))

    @cached_property
    def _template(self) -> jinja2.Template:
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        with _in_words():
            return environment.from_string(self.source or "")


def chat_format(tokenizer: Tokenizer) -> ChatFormat:
    """The file's template; ChatML where the vocabulary has its marks; else plain text."""
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    tokens = {name: "" if i is None else tokenizer.token_text(i) for name, i in ids.items()}
    if tokenizer.chat_template:
        return ChatFormat(tokenizer.chat_template, "template", tokens)
    if _CHATML_MARK in tokenizer.vocabulary.tokens:
        return ChatFormat(CHATML, "chatml", tokens)
    return ChatFormat(None, "plain", tokens)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(f"the chat template refuses the messages: {message}")


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _joined(pieces: Iterator[str]) -> str:
    """The whole output, within the limits of size and time."""
    parts, size = [], 0
    with _time_limit():
        for piece in pieces:
            size += len(piece)
            if size > _MAX_OUTPUT:
                raise TemplateError("the chat template writes without end")
            parts.append(piece)
    return "".join(parts)


@contextmanager
def _in_words() -> Iterator[None]:
    """Turns whatever a template raises into one line."""
    try:
        yield
    except TemplateError:
        raise
    except RecursionError:
        raise TemplateError("the chat template calls itself without end") from None
    except Exception as error:
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        text = " ".join(str(error).split())
        raise TemplateError(f"the chat template fails{line}: {text}; try --raw") from None


@contextmanager
def _time_limit() -> Iterator[None]:
    """Ends a template that computes without end; only the main thread can be interrupted so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> NoReturn:
        raise TemplateError(f"the chat template takes more than {_MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, _MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
