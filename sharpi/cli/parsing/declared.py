"""Declared: the declaration of an option or argument, in the annotation of a parameter."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct


class Declared(Struct, frozen=True):
    """The names, help and values of an option, or of an argument if there are no names."""

    names: tuple[str, ...]  # `--raw`, or `--think/--no-think` for a switch that may be off
    help: str
    metavar: str | None = None
    # Environment variables, one of which sets the value if no flag does.
    variables: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    parser: Callable[[str], Any] | None = None  # replaces the parser of the annotated type
    callback: Callable[[Any], Any] | None = None  # checks a value, and may replace it
    # Splits an environment variable into the values of a list.
    split: Callable[[str], Sequence[str]] | None = None
    # Returns the values that shell completion offers.
    autocompletion: Callable[[], Sequence[str]] | None = None
    show_default: str | None = None  # describes the default in words
    is_everyday: bool = False  # listed in the short help

    @property
    def is_argument(self) -> bool:
        """True for a positional argument."""
        return not self.names
