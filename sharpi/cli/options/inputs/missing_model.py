"""Fetches a model that is not in the cache, with --pull or after asking the user."""

import sys

import typer

from sharpi.cli.output.download_display import fetch
from sharpi.cli.output.terminal import print_stderr, stdin_is_terminal
from sharpi.errors import HubError
from sharpi.hub.catalogue import approximate_bytes
from sharpi.hub.model_name import ModelName
from sharpi.units import format_bytes


class MissingModelError(HubError):
    """Raised for a valid model name of the hub that is not in the cache."""

    def __init__(self, message: str, name: ModelName) -> None:
        super().__init__(message)
        self.name = name


def fetch_missing(context: typer.Context, error: MissingModelError) -> None:
    """Fetches the model with --pull, or if the user agrees at the terminal; else raises `error`."""
    if "pull" not in context.params:
        raise error
    if not context.params["pull"] and not _is_wanted(error):
        raise error
    fetch(error.name)


def _is_wanted(error: MissingModelError) -> bool:
    if not stdin_is_terminal() or not sys.stderr.isatty():
        return False
    size = approximate_bytes(error.name)
    about = "" if size is None else f" (about {format_bytes(size)})"
    print_stderr(f"{error.name} is not in the cache. Fetch it{about} from the hub now? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
