"""Finds the file of a model that the user names, by path or by name in the cache.

It downloads nothing: a mistyped name must not start a download of twenty gigabytes, and a script
should behave the same on every machine. For a missing model the error shows the `sharpi pull` line
to type.
"""

import os
import re
import sys
from glob import escape, glob
from pathlib import Path
from shlex import quote

import typer

from sharpi.cli.output.download_display import fetch
from sharpi.cli.output.terminal import confirm, print_note, stdin_is_terminal
from sharpi.errors import HubError, ModelFileError, SharpiError, UsageError, close_matches
from sharpi.hub.catalogue import ModelName, approximate_bytes, find_entry, read_name, require_name
from sharpi.units import format_bytes


def find_name(text: str) -> ModelName | None:
    """Returns the repository and quant on the hub that `text` names; None if it names none."""
    found = find_entry(text)
    return read_name(text) if found is None else found[0].model_name(found[1])


def parse_name(text: str) -> ModelName:
    """Returns the repository and quant that `text` names; raises UsageError if it names none."""
    return find_name(text) or require_name(text)


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
    return confirm(f"{error.name} is not in the cache. Fetch it{about} from the hub now?")


_MOST_CLOSE = 3


def unknown_model(text: str, *, prompt: str | None = None) -> UsageError:
    """Returns the error for what is neither file nor model; `prompt` is what it may begin."""
    close = _close(text)
    meant = f"; did you mean {' or '.join(close)}?" if close else ";"
    hint = "`sharpi pull ORG/REPO:QUANT` fetches a model, and `sharpi models` names some"
    if prompt is not None:
        hint += f"; if it is the prompt, write sharpi run -p {quote(prompt)}"
    return UsageError(f"'{text}' is neither a file nor the name of a model{meant} {hint}")


def _close(text: str) -> list[str]:
    """Returns up to three similar names of models: files here, cached and well-known models."""
    from sharpi.hub.cache import Cache
    from sharpi.hub.catalogue import short_names

    files = [each.name for each in Path().iterdir() if each.suffix.lower() == ".gguf"]
    models = [str(model.name) for model in Cache().all_models()]
    stems = {name.partition("/")[2].lower(): name for name in models}
    word = text.lower()
    within = [name for stem, name in stems.items() if word in stem]
    names = [*close_matches(text, files), *within, *close_matches(text, [*models, *short_names()])]
    return list(dict.fromkeys(names))[:_MOST_CLOSE]


def models_beginning(word: str) -> list[str]:
    """Returns the names of complete cached models, folders and .gguf files that a word begins."""
    from sharpi.hub.cache import Cache
    from sharpi.hub.catalogue import short_names_of

    models = [model.name for model in Cache().all_models() if model.is_complete]
    names = [*map(str, models), *short_names_of(models)]
    paths = (Path(each) for each in glob(escape(os.path.expanduser(word)) + "*"))
    files = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    return sorted(
        [
            *(name for name in names if name.startswith(word)),
            *(file for file in files if file.lower().endswith((".gguf", "/"))),
        ]
    )


_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_MOST_LISTED = 6


def model_path(text: str) -> Path:
    """Returns the file at the path `text`, or else of the cached model with that name.

    A text that can only be a path is returned even if the file does not exist, because opening it
    raises the clearest error. Raises SharpiError if `text` is neither.
    """
    if not text.strip():
        raise UsageError("the name of the model is empty; name a .gguf file or ORG/REPO:QUANT")
    path = Path(text)
    if path.is_dir():
        return _only_model(path)
    if os.path.lexists(path):
        return path
    name = find_name(text)
    if name is not None:
        return _named(name, path)
    if _URL.match(text):
        raise UsageError(
            f"{text} is a URL, and only names of the hub are understood; download the file and"
            " name it, or type `sharpi pull ORG/REPO:QUANT`"
        )
    if not looks_like_path(text):
        raise unknown_model(text)
    return path


def looks_like_path(text: str) -> bool:
    """Returns whether a text exists, ends in .gguf, is a URL or has a slash but no blank."""
    if text.lower().endswith(".gguf") or _URL.match(text):
        return True
    has_folder = os.sep in text and not any(letter.isspace() for letter in text)
    return has_folder or (bool(text) and os.path.lexists(text))


def _only_model(folder: Path) -> Path:
    """Returns a folder's one model, perhaps in parts; raises ModelFileError for none or several."""
    from sharpi.gguf.file_kind import may_be_model
    from sharpi.gguf.reader import part_number

    files = sorted(each for each in folder.iterdir() if each.suffix.lower() == ".gguf")
    models = [
        each
        for each in files
        if "mmproj" not in each.name.lower() and (part_number(each) or 1) == 1
    ]
    if len(models) > 1:
        models = [each for each in models if may_be_model(each)]
    if len(models) == 1:
        return models[0]
    if not models:
        raise ModelFileError(f"{folder}: this is a folder without a .gguf model in it")
    names = ", ".join(each.name for each in models[:_MOST_LISTED])
    more = f" and {len(models) - _MOST_LISTED} more" if len(models) > _MOST_LISTED else ""
    raise ModelFileError(f"{folder}: this is a folder with several models, {names}{more}; name one")


def _named(name: ModelName, path: Path) -> Path:
    from sharpi.hub.cache import Cache, look_up

    try:
        model, note = look_up(Cache(), name)
    except SharpiError as error:
        if name.quant is None and path.parent.is_dir():  # a mistyped path in an existing folder
            return path
        if isinstance(error, HubError):
            raise MissingModelError(str(error), name) from None
        raise
    if note is not None:
        print_note(note)
    return model.start
