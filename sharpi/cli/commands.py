"""The commands by their names, each imported only when it is wanted."""

from collections.abc import Callable, Sequence
from importlib import import_module

_MODULES = {
    "run": "run",
    "chat": "chat",
    "tokenize": "tokenize",
    "inspect": "inspect",
    "logits": "logits",
    "perplexity": "perplexity",
    "bench": "bench",
    "plan": "plan",
    "doctor": "doctor",
    "simulate": "simulate",
    "stats": "stats",
    "pull": "pull",
    "rm": "rm",
    "serve": "serve",
    "ps": "ps",
    "list": "list_models",
}


def wanted_commands(arguments: Sequence[str]) -> dict[str, Callable[..., None]]:
    """The command that the arguments begin with; all, in the order of the help, for any other."""
    first = next((each for each in arguments if not each.startswith("-")), None)
    names = (first,) if first in _MODULES else _MODULES
    return {name: _command(_MODULES[name]) for name in names}


def _command(module: str) -> Callable[..., None]:
    """The function of a module that has the module's name."""
    command: Callable[..., None] = getattr(import_module(f"sharpi.cli.{module}"), module)
    return command
