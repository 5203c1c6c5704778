"""`sharpi rm`: removes a model from the cache."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sharpi.cli.options.inputs.model_name import parse_name
from sharpi.cli.output.terminal import print_stderr, stdin_is_terminal
from sharpi.errors import HubError, UsageError, did_you_mean
from sharpi.hub.model_name import ModelName
from sharpi.settings.option import argument, local_option
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.hub.cache import Cache, CachedModel
    from sharpi.hub.removal import Removal


def rm(
    name: Annotated[str, argument("NAME", "A name as `sharpi list` prints it.")],
    yes: Annotated[bool, local_option("-y --yes", "Do not ask.")] = False,
) -> None:
    """Remove a model from the hub's cache.

    Content that another revision also uses stays. A program that runs the model keeps it until it
    exits.
    """
    from sharpi.hub.cache import Cache, default_cache_folder
    from sharpi.hub.removal import Removal

    cache = Cache(default_cache_folder())
    models = _named(cache, parse_name(name))
    removal = Removal(cache, models)
    if not yes and not _is_sure(models[0].name, removal):
        raise typer.Exit(1)
    removal.carry_out()
    print(f"removed {models[0].name}: {_balance(removal)}")


def _named(cache: "Cache", name: ModelName) -> "list[CachedModel]":
    """Returns the cached revisions of the one model that `name` matches, complete or not.

    Raises HubError if it matches no model or several.
    """
    from sharpi.hub.cache import models_of
    from sharpi.hub.choice import variants_named

    models = models_of(cache, name)
    if name.quant is not None:
        models = [model for model in models if variants_named(name.quant, [model.variant])]
    names = list(dict.fromkeys(str(model.name) for model in models))
    if len(names) > 1:
        raise HubError(f"{name} may be any of {', '.join(names)}; name one")
    if not models:
        meant = did_you_mean(str(name), (str(each.name) for each in cache.all_models()), 3)
        raise HubError(f"{name} is not in the cache{meant or '; `sharpi list` shows what is'}")
    return models


def _is_sure(name: ModelName, removal: "Removal") -> bool:
    if not stdin_is_terminal():
        raise UsageError(f"stdin is not a terminal to confirm the removal of {name}; use -y")
    print_stderr(f"remove {name} ({_balance(removal)})? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _balance(removal: "Removal") -> str:
    shared = f", {format_bytes(removal.kept_bytes)} are shared and stay"
    return f"{format_bytes(removal.freed_bytes)} freed" + (shared if removal.kept_bytes else "")
