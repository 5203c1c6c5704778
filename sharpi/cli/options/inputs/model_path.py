"""Finds the file of a model that the user names, by path or by name in the cache.

It downloads nothing: a mistyped name must not start a download of twenty gigabytes, and a script
should behave the same on every machine. For a missing model the error shows the `sharpi pull` line
to type.
"""

import os
import re
from pathlib import Path

from sharpi.cli.options.inputs.missing_model import MissingModelError
from sharpi.cli.options.inputs.model_name import find_name
from sharpi.cli.options.inputs.unknown_model import unknown_model
from sharpi.cli.output.terminal import print_note
from sharpi.errors import HubError, ModelFileError, SharpiError, UsageError
from sharpi.hub.model_name import ModelName

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
    """Returns whether a text is a path: it exists, ends in .gguf, is a URL or has a slash.

    A text with a slash and a blank is not a path unless it exists.
    """
    if text.lower().endswith(".gguf") or _URL.match(text):
        return True
    has_folder = os.sep in text and not any(letter.isspace() for letter in text)
    return has_folder or (bool(text) and os.path.lexists(text))


def _only_model(folder: Path) -> Path:
    """Returns the only model in a folder; raises ModelFileError for none or several.

    The parts of a split model count as one model.
    """
    from sharpi.gguf.file_kind import may_be_model
    from sharpi.gguf.split_set import part_number

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
    from sharpi.hub.cache import Cache, default_cache_folder, look_up

    try:
        model, note = look_up(Cache(default_cache_folder()), name)
    except SharpiError as error:
        if name.quant is None and path.parent.is_dir():  # a mistyped path in an existing folder
            return path
        if isinstance(error, HubError):
            raise MissingModelError(str(error), name) from None
        raise
    if note is not None:
        print_note(note)
    return model.start
