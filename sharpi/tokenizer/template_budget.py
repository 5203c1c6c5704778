"""TemplateBudget: limits the steps of one rendering of a chat template, and the sizes of values.

Steps are counted rather than timed, so that the limits are the same on every machine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2.utils import Namespace

from sharpi.errors import TemplateError

MAX_SIZE = 8 << 20  # characters of one value, and of the whole output
_ENTRY_SIZE = 16  # the size of a list entry, in characters
_MAX_PRODUCT = 64 << 20  # estimated characters that one filter may build
_MAX_STEPS = 1 << 19  # steps, which take about a second
_SIZE_PER_STEP = 256
_MAX_BITS = 1 << 16  # the most bits of an integer
# Tuples, because `measure` runs for each call and output of a template, and unions are slow.
_TEXTS = (str, bytes)
_LISTS = (list, tuple, set, frozenset)
_MAPPINGS = (dict, Mapping)
_HUGE_FIELD = re.compile(r"\d{5}|\{[^{}]*\{|%[^a-zA-Z%]*\*")


class TemplateBudget:
    """Counts the steps of one rendering; raises TemplateError when a limit is exceeded."""

    def __init__(self) -> None:
        self._steps = 0

    def spend(self, size: int = 0) -> None:
        """Counts one step, and more steps for work on a value of `size` characters."""
        self._steps += 1 + size // _SIZE_PER_STEP
        if self._steps > _MAX_STEPS:
            raise TemplateError("the chat template takes too many steps")

    def check_size(self, size: float, limit: int = MAX_SIZE) -> None:
        """Raises TemplateError if a value of `size` characters would exceed `limit`."""
        if size > limit:
            raise TemplateError("the chat template builds an enormous value")

    def measure(self, *values: Any) -> int:
        """Returns the total size of the values in characters, and counts the steps to measure it.

        Shared parts count each time they appear. Raises TemplateError if a limit is exceeded.
        """
        total, pending = 0, list(values)
        while pending:
            value = pending.pop()
            total += _ENTRY_SIZE
            if isinstance(value, _TEXTS):
                total += len(value)
            elif isinstance(value, int):
                total += value.bit_length() // 3
            elif isinstance(value, _LISTS):
                pending += value
            elif isinstance(value, _MAPPINGS):
                pending += value.keys()
                pending += value.values()
            elif isinstance(value, Namespace):
                pending.append(vars(value)["_Namespace__attrs"])
            self.check_size(total + _ENTRY_SIZE * len(pending))
        self.spend(total)
        return total

    def count_items(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the values and counts each as a step, as in a loop."""
        for value in values:
            self.spend()
            yield value

    def measured_list(self, values: Iterable[Any]) -> list[Any]:
        """Returns the values as a list; raises TemplateError as soon as their size is too large."""
        found, total = [], 0
        for value in values:
            total += self.measure(value)
            self.check_size(total)
            found.append(value)
        return found

    def check_operation(self, operator: str, left: Any, right: Any) -> None:
        """Raises TemplateError if the result of a binary operation would be too large."""
        if operator == "%" and isinstance(left, str):
            self.check_format(left, right)
        elif isinstance(left, int) and isinstance(right, int):
            self._admit_number(operator, left, right)
        elif operator == "+":
            self.measure(left, right)
        elif operator == "*":
            for value, count in ((left, right), (right, left)):
                if isinstance(count, int) and not isinstance(value, int | float):
                    self.check_size(self.measure(value) * max(count, 0))

    def check_format(self, form: str, values: Any) -> None:
        """Raises TemplateError if the result of a format string would be too large.

        Field widths that are huge or computed are forbidden.
        """
        if _HUGE_FIELD.search(form):
            raise TemplateError("the chat template pads a string enormously")
        self.check_size(len(form) + (form.count("%") + form.count("{")) * self.measure(values))

    def check_filter(self, value: Any, arguments: Iterable[Any]) -> None:
        """Raises TemplateError if a filter's value and arguments allow too large a result.

        The estimate is the size of the value times that of the arguments; a number counts as its
        absolute value.
        """
        factor = 1
        for argument in arguments:
            is_number = isinstance(argument, int | float)
            factor += int(abs(argument)) if is_number else self.measure(argument)
        self.check_size(self.measure(value) * factor, _MAX_PRODUCT)

    def check_method(self, text: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Raises TemplateError if the result of a string method would be too large."""
        numbers = [abs(value) for value in arguments if isinstance(value, int)]
        texts = [value for value in arguments if isinstance(value, str)]
        if name in ("format", "format_map"):
            self.check_format(text, arguments)
        elif name == "replace" and len(texts) == 2:
            self.check_size(len(text) + text.count(texts[0]) * len(texts[1]))
        elif name == "join" and arguments:
            self.check_size(self.measure(arguments[0]) * max(1, len(text)))
        elif name == "expandtabs":
            self.check_size(text.count("\t") * max(numbers, default=8))
        elif name in ("center", "ljust", "rjust", "zfill"):
            self.check_size(max(numbers, default=0))
        elif name == "translate":
            raise TemplateError("the chat template uses translate, which is not allowed")

    def _admit_number(self, operator: str, left: int, right: int) -> None:
        bits = {
            "*": left.bit_length() + right.bit_length(),
            "**": left.bit_length() * abs(right),
        }
        self.check_size(bits.get(operator, 0), _MAX_BITS)
