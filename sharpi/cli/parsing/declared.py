"""An option or an argument as the annotation of a parameter declares it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct


class Declared(Struct, frozen=True):
    """The names, the help and the values of an option, or of an argument if it has no names."""

    names: tuple[str, ...]  # `--raw`, or `--think/--no-think` for a switch that may be off
    help: str
    metavar: str | None = None
    variables: tuple[str, ...] = ()  # of the environment; one gives the value if no flag does
    min: float | None = None
    max: float | None = None
    parser: Callable[[str], Any] | None = None  # in place of the parser for the annotation
    callback: Callable[[Any], Any] | None = None  # checks a value, and may replace it
    split: Callable[[str], Sequence[str]] | None = None  # the values of a list in a variable
    autocompletion: Callable[[], Sequence[str]] | None = None  # the values that a shell offers
    show_default: str | None = None  # the default in words
    is_everyday: bool = False  # stands in the short help

    @property
    def is_argument(self) -> bool:
        """True for an argument, which is given by its place."""
        return not self.names
