"""From what the user calls a model, a path or a name in the cache, to the file to open.

Nothing is downloaded here: a mistyped name must not begin to fetch twenty gigabytes, and a script
does the same wherever it runs. What is missing is answered with the `sharpi pull` line to type.
"""

import os
from pathlib import Path

from sharpi.cli.output.terminal import note
from sharpi.hub.model_name import ModelName, read_name


def model_path(text: str) -> Path:
    """The file that `text` names: whatever exists, else a model of the cache; raises SharpiError.

    What can only be a path is handed back though it does not exist; opening it says so best.
    """
    path = Path(text)
    name = None if os.path.lexists(path) else read_name(text)
    return path if name is None else _named(name, path)


def _named(name: ModelName, path: Path) -> Path:
    from sharpi.errors import SharpiError
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
