"""The commands by name, each imported only when needed."""

from collections.abc import Callable, Sequence
from importlib import import_module

_NAMES = (
    "run",
    "chat",
    "tokenize",
    "inspect",
    "logits",
    "perplexity",
    "bench",
    "plan",
    "doctor",
    "simulate",
    "stats",
    "pull",
    "rm",
    "serve",
    "ps",
    "list",
)
_OTHER_MODULES = {"list": "list_models"}


def wanted_commands(arguments: Sequence[str]) -> dict[str, Callable[..., None]]:
    """Returns the command that the arguments begin with, or else all in the order of the help."""
    is_named = bool(arguments) and arguments[0] in _NAMES
    return {name: _command(name) for name in (arguments[:1] if is_named else _NAMES)}


def _command(name: str) -> Callable[..., None]:
    """Returns the function that is named as its module."""
    module = _OTHER_MODULES.get(name, name)
    command: Callable[..., None] = getattr(import_module(f"sharpi.cli.commands.{module}"), module)
    return command
