"""TemplateSandbox: runs chat templates, which are untrusted programs.

jinja2's immutable sandbox denies access to Python's attributes and changes to the arguments.
TemplateBudget limits computing time and memory. Trimming, extensions, globals and filters are the
same as in transformers' chat templates.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sharpi.errors import TemplateError
from sharpi.tokenizer.template_budget import TemplateBudget

_LOOP_FILTER = "_counted"
# Slow, or with results larger than their arguments suggest; no chat template needs them.
_DROPPED_FILTERS = ("urlize", "wordwrap", "pprint", "xmlattr", "random")
_MAX_DATE_FORMAT = 100
_SCALARS = (str, int, float, type(None))


class _GenerationTag(Extension):
    """Accepts transformers' `{% generation %}` tag around assistant text and ignores it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Generates Python code in which the sandbox checks the sizes of literals and of `~`."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._wrapped("joined", lambda: self._items(node.nodes, frame))

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._wrapped("measured", lambda: super(_BoundedCode, self).visit_List(node, frame))

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._wrapped("measured", lambda: super(_BoundedCode, self).visit_Dict(node, frame))

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "store":
            super().visit_Tuple(node, frame)
        else:
            self._wrapped("measured", lambda: super(_BoundedCode, self).visit_Tuple(node, frame))

    def _wrapped(self, method: str, write_value: Callable[[], None]) -> None:
        self.write(f"environment.{method}(")
        write_value()
        self.write(")")

    def _items(self, values: Iterable[nodes.Expr], frame: Frame) -> None:
        self.write("(")
        for value in values:
            self.visit(value, frame)
            self.write(", ")
        self.write(")")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A jinja2 environment with a `budget`, which is renewed before each rendering."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _BoundedCode

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=self.measured,
        )
        self.budget = TemplateBudget()
        for name in _DROPPED_FILTERS:
            self.filters.pop(name, None)
        del self.globals["lipsum"]
        self.filters["tojson"] = _to_json
        self.filters = {name: self._bounded(name, call) for name, call in self.filters.items()}
        self.filters[_LOOP_FILTER] = lambda values: self.budget.count_items(values)
        self.globals.update(raise_exception=_refuse, strftime_now=_now)

    def measured(self, value: Any) -> Any:
        """Returns `value` unchanged; raises TemplateError if it is too large."""
        if not isinstance(value, _SCALARS):
            self.budget.measure(value)
        return value

    def joined(self, values: tuple[Any, ...]) -> str:
        """Implements the operator `~`: returns the values joined to one text.

        Raises TemplateError if they are too large.
        """
        self.budget.measure(values)
        return "".join(map(str, values))

    def concat(self, pieces: Iterable[str]) -> str:
        """Joins the output of a block or a macro; raises TemplateError if it is too long."""
        return "".join(self.budget.measured_list(pieces))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.budget.spend()
        self.budget.check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = __self.budget
        args = tuple(budget.measured_list(a) if isinstance(a, Iterator) else a for a in args)
        budget.measure(args, kwargs)
        # The sandbox wraps str.format; the method is behind the wrapper.
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            budget.spend(len(owner))
            budget.check_method(owner, method.__name__, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Returns the syntax tree of a template, in which every loop counts its steps."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(
                loop.iter, _LOOP_FILTER, [], [], None, None, lineno=loop.lineno
            )
        return tree

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a filter with a size check; jinja2's attributes of the function are kept."""
        num_leading = int(hasattr(function, "jinja_pass_arg"))  # the context, for example

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            head, (value, *rest) = args[:num_leading], args[num_leading:]
            if isinstance(value, Iterator):
                value = self.budget.measured_list(value)
            self._admit(name, value, [*rest, *kwargs.values()])
            return function(*head, value, *rest, **kwargs)

        return bounded

    def _admit(self, name: str, value: Any, arguments: list[Any]) -> None:
        if name == "replace":
            self.budget.check_method(str(self.measured(value)), name, tuple(arguments))
        elif name == "format":
            self.budget.check_format(str(value), arguments)
        elif name == "sum" and any(isinstance(a, list | tuple) for a in arguments):
            raise TemplateError("the chat template sums lists, which is not allowed")
        else:
            self.budget.check_filter(value, arguments)


def _refuse(message: Any) -> NoReturn:
    raise TemplateError(f"the chat template refuses the messages: {message}")


def _now(form: str) -> str:
    """Returns the current date and time in the format `form` of strftime.

    Raises TemplateError for digits in `form`, since C's strftime pads to any width with them.
    """
    if len(form) > _MAX_DATE_FORMAT or any(character.isdigit() for character in form):
        raise TemplateError("the chat template asks for a date in a form that is not allowed")
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
