"""Completes the commands of a chat, and the files, models and settings that they take."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from sharpi.cli.chat.chat_settings import setting_names
from sharpi.cli.chat.slash_command import ALIASES, NAMES
from sharpi.errors import SharpiError

_WITH_FILES = ("/load", "/save", "/file", "/image")


class ChatCompleter(Completer):
    """Completes a line that begins with a slash; other text is left alone."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yields what the word before the cursor may become."""
        text = document.text_before_cursor.lstrip()
        name, blank, rest = text.partition(" ")
        if not name.startswith("/") or name.startswith("//"):
            return
        if not blank:
            yield from _beginning_with(name, [*NAMES, *ALIASES])
        elif name in _WITH_FILES or (name == "/model" and rest[:1] in ("/", ".", "~")):
            yield from self._paths.get_completions(Document(rest), event)
        elif choices := _CHOICES.get(name):
            yield from _beginning_with(rest, choices())


def _beginning_with(word: str, choices: Iterable[str]) -> Iterable[Completion]:
    for choice in sorted(choices):
        if choice.startswith(word):
            yield Completion(choice, start_position=-len(word))


def _model_names() -> list[str]:
    """Returns the names of the complete models in the cache."""
    from sharpi.hub.cache import Cache, default_cache_folder

    with suppress(SharpiError, OSError):
        models = Cache(default_cache_folder()).all_models()
        return [str(model.name) for model in models if model.is_complete]
    return []


_CHOICES: dict[str, Callable[[], Iterable[str]]] = {"/model": _model_names, "/set": setting_names}
