"""Finds the file of a model that the user names by path, or by its name in the cache.

Nothing is downloaded: a mistyped name must not start a download of twenty gigabytes, and a script
behaves the same on every machine. For a missing model the error shows the `sharpi pull` line to
type.
"""

import os
from pathlib import Path

from sharpi.cli.output.terminal import note
from sharpi.errors import SharpiError
from sharpi.hub.model_name import ModelName, read_name


def model_path(text: str) -> Path:
    """Returns an existing path, else a model of the cache; raises SharpiError.

    A text that can only be a path is returned even if it does not exist, since opening it gives the
    best error.
    """
    path = Path(text)
    name = None if os.path.lexists(path) else read_name(text)
    return path if name is None else _named(name, path)


def _named(name: ModelName, path: Path) -> Path:
    from sharpi.hub.cache import Cache, default_cache_folder
    from sharpi.hub.look_up import look_up

    try:
        model, remark = look_up(Cache(default_cache_folder()), name)
    except SharpiError:
        if name.quant is None and path.parent.is_dir():  # a mistyped path in a folder that exists
            return path
        raise
    if remark is not None:
        note(remark)
    return model.start
