"""Completes the slash commands of a chat, and their files, models and settings, with Tab."""

import os
from collections.abc import Iterable
from contextlib import suppress

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from sharpi.cli.chat.chat_settings import setting_names
from sharpi.cli.chat.slash_command import ALIASES, NAMES
from sharpi.errors import SharpiError

_WITH_FILES = ("/load", "/save", "/file")


class ChatCompleter(Completer):
    """A prompt_toolkit completer for lines that begin with a slash; it ignores other lines."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)
        self._models = PathCompleter(expanduser=True, file_filter=_may_be_model)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yields completions of the word before the cursor."""
        text = document.text_before_cursor.lstrip()
        name, blank, rest = text.partition(" ")
        if not name.startswith("/") or name.startswith("//"):
            return
        if not blank:
            yield from _beginning_with(name, [*NAMES, *ALIASES])
        elif name in _WITH_FILES:
            yield from self._paths.get_completions(Document(rest), event)
        elif name == "/model":
            yield from _beginning_with(rest, _model_names())
            yield from self._models.get_completions(Document(rest), event)
        elif name == "/set":
            yield from _beginning_with(rest, setting_names())


def _beginning_with(word: str, choices: Iterable[str]) -> Iterable[Completion]:
    for choice in sorted(choices):
        if choice.startswith(word):
            yield Completion(choice, start_position=-len(word))


def _may_be_model(path: str) -> bool:
    return os.path.isdir(path) or path.lower().endswith(".gguf")


def _model_names() -> list[str]:
    """Returns the full and the short names of the complete models in the cache."""
    from sharpi.hub.cache import Cache, default_cache_folder
    from sharpi.hub.catalogue import short_names_of

    with suppress(SharpiError, OSError):
        models = Cache(default_cache_folder()).all_models()
        names = [model.name for model in models if model.is_complete]
        return [*map(str, names), *short_names_of(names)]
    return []
