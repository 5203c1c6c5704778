"""`sharpi cache`: lists and removes the prompts that --prompt-cache stores on disk."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sharpi.cli.inputs import JsonOption
from sharpi.cli.output.terminal import print_stderr, strip_controls
from sharpi.errors import UsageError
from sharpi.settings.option import Option, local_option
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder, ModelFolder

_KEY_WIDTH = 12  # characters of a key that the table shows
_NAME_WIDTH = 34

Action = Literal["list", "rm"]


def cache(
    action: Annotated[Action, Option("ACTION", "list, or rm KEY...")] = "list",
    keys: Annotated[
        list[str] | None, Option("KEY", "The beginnings of keys, as `list` prints them.")
    ] = None,
    prompt_cache: Annotated[
        Path | None, Option("--prompt-cache DIR", "The folder of the prompt cache.")
    ] = None,
    everything: Annotated[bool, local_option("--all", "With rm: remove all kept prompts.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List and remove the prompts that --prompt-cache keeps on disk.

    A model has several rows if it was run with several types of keys and values, or with several
    builds of sharpi. Rows of builds that are gone are never used again.
    """
    folder = _folder(prompt_cache)
    if action == "rm":
        _remove_prompts(folder, keys, everything)
        return
    if keys:
        raise UsageError("list takes no keys")
    models = folder.models()
    if as_json:
        json.dump([_prompts_record(each) for each in models], sys.stdout, ensure_ascii=False)
        print()
        return
    for each in models:
        print(_line(each))
    total = sum(each.num_bytes for each in models)
    print_stderr(f"{format_bytes(total)} in {folder.path}")


def _folder(path: Path | None) -> "CacheFolder":
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder

    if path is None:
        raise UsageError("name the folder with --prompt-cache DIR or SHARPI_PROMPT_CACHE")
    if not path.exists():
        raise UsageError(f"--prompt-cache {path}: there is no such folder")
    return CacheFolder(path, max_bytes=0)


def _remove_prompts(folder: "CacheFolder", keys: Sequence[str] | None, everything: bool) -> None:
    if everything == bool(keys):
        raise UsageError("rm needs the keys of models, or --all")
    models = folder.models()
    chosen = models if everything else [_with_key(models, key) for key in keys or ()]
    for each in chosen:
        folder.remove(each)
    count = sum(each.num_bytes for each in chosen)
    print_stderr(f"Removed {format_bytes(count)}.")


def _with_key(models: "Sequence[ModelFolder]", key: str) -> "ModelFolder":
    """Returns the folder whose key begins with `key`; raises UsageError for none or several."""
    found = [each for each in models if each.key.startswith(key)]
    if len(found) == 1 and key:
        return found[0]
    which = "several keys begin" if found and key else "no key begins"
    raise UsageError(f"{which} with {key!r}; `sharpi cache list` shows them")


def _line(model: "ModelFolder") -> str:
    used = datetime.fromtimestamp(model.last_use_ns / 1e9).strftime("%Y-%m-%d %H:%M")
    name = strip_controls(str(model.about.get("model", "unknown")))[:_NAME_WIDTH]
    size = format_bytes(model.num_bytes)
    return f"{model.key[:_KEY_WIDTH]}  {used}  {size:>9}  {name}"


def _prompts_record(model: "ModelFolder") -> dict[str, Any]:
    return {
        "key": model.key,
        "model": model.about.get("model"),
        "kv_type": model.about.get("kv_type"),
        "files": model.num_files,
        "bytes": model.num_bytes,
        "last_use": datetime.fromtimestamp(model.last_use_ns / 1e9).isoformat(timespec="seconds"),
    }
