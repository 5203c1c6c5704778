"""TemplateSandbox: renders chat templates, which are untrusted programs, in jinja2's sandbox."""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sharpi.errors import TemplateError
from sharpi.gguf.cursor import printable

MAX_OUTPUT = 8 << 20  # characters
MAX_SECONDS = 5.0  # of the rendering thread's processor time
_MAX_SOURCE = 1 << 20
_LOOP_FILTER = "_timed"


class _GenerationTag(Extension):
    """Accepts transformers' `{% generation %}` tag around assistant text and ignores it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Renders what transformers renders, within limits on time and output; thread-safe.

    jinja2's immutable sandbox denies access to Python's attributes and changes to the arguments.
    The clock is read at each call, each iteration of a loop and each piece of output. This does not
    bound a single operation or filter (`2 ** 10 ** 9`), nor memory: a template of a hostile model
    file can still use up either.
    """

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        self.filters.update(tojson=_to_json, **{_LOOP_FILTER: self._timed})
        self.globals.update(raise_exception=_refuse, strftime_now=_now)
        self._compiled: dict[str, Template] = {}
        self._rendering = threading.local()

    def render(self, source: str, values: Mapping[str, Any]) -> str:
        """Returns the output of a template; raises TemplateError, of one line, for any failure."""
        try:
            return self._output(self._template(source), values)
        except TemplateError as error:
            raise TemplateError(_one_line(str(error))) from None
        except RecursionError:
            raise TemplateError("the chat template recurses without end") from None
        except Exception as error:
            line = f" in line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            text = f"the chat template fails{line}: {_one_line(str(error))}; --raw skips it"
            raise TemplateError(text) from None

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self._check_time()
        return super().call(__context, __obj, *args, **kwargs)

    def _output(self, template: Template, values: Mapping[str, Any]) -> str:
        self._rendering.end = time.thread_time() + MAX_SECONDS
        pieces, length = [], 0
        for piece in self._timed(template.generate(values)):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_OUTPUT:
                raise TemplateError("the chat template writes too much")
        return "".join(pieces)

    def _template(self, source: str) -> Template:
        """Returns a compiled template whose loops read the clock."""
        if source not in self._compiled:
            if len(source) > _MAX_SOURCE:
                raise TemplateError("the chat template is longer than a megabyte")
            tree = self.parse(source)
            for loop in tree.find_all(nodes.For):
                loop.iter = nodes.Filter(
                    loop.iter, _LOOP_FILTER, [], [], None, None, lineno=loop.lineno
                )
            self._compiled[source] = self.from_string(tree)
        return self._compiled[source]

    def _timed(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._check_time()
            yield value

    def _check_time(self) -> None:
        if time.thread_time() > self._rendering.end:
            raise TemplateError("the chat template takes too long")


def _refuse(message: Any) -> NoReturn:
    raise TemplateError(f"the chat template refuses the messages: {message}")


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=list,  # what filters such as `map` return
    )


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
