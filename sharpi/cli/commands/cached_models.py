"""`sharpi list`, `pull` and `rm`: models in the hub's cache; `sharpi cache`: kept prompts."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sharpi.cli.inputs import JsonOption
from sharpi.cli.model_path import parse_name
from sharpi.cli.output.download_display import fetch
from sharpi.cli.output.terminal import (
    confirm,
    fitted,
    print_stderr,
    stdin_is_terminal,
    strip_controls,
)
from sharpi.errors import HubError, UsageError, did_you_mean
from sharpi.hub.catalogue import ModelName, require_name
from sharpi.settings.option import Option, local_option
from sharpi.units import format_bytes, format_time

if TYPE_CHECKING:
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder, ModelFolder
    from sharpi.hub.cache import Cache, CachedModel, Removal


def list_models(as_json: JsonOption = False) -> None:
    """List the models in the hub's cache.

    run, chat, serve and the other commands take these names. A model that is not complete is
    marked; `sharpi pull` resumes its download and `sharpi rm` removes it.
    """
    from sharpi.hub.cache import Cache

    cache = Cache()
    models = cache.all_models()
    if as_json:
        print(
            json.dumps({"cache": str(cache.folder), "models": [_record(each) for each in models]})
        )
    elif models:
        _print_table(models)
    else:
        text = f"no models in {cache.folder}; `sharpi pull ORG/REPO:QUANT` fetches one"
        print(fitted(text, sys.stdout))


def _print_table(models: "list[CachedModel]") -> None:
    from sharpi.cli.output.tables import left, output_console, print_table, right

    columns = (*left("name"), *right("size"), *left("modified", ""))
    rows = [
        (str(each.name), format_bytes(each.size), format_time(each.modified), _flaw(each))
        for each in models
    ]
    print_table(output_console(), columns, rows)


def _flaw(model: "CachedModel") -> str:
    return "" if model.is_complete else "incomplete"


def _record(model: "CachedModel") -> dict[str, Any]:
    return {
        "name": str(model.name),
        "repository": model.name.repository,
        "quant": model.name.quant,
        "revision": model.name.revision,
        "size_bytes": model.size,
        "modified": datetime.fromtimestamp(model.modified).astimezone().isoformat(),
        "path": str(model.start) if model.is_complete else None,
        "num_files": len(model.files),
        "complete": model.is_complete,
    }


def pull(
    name: Annotated[
        str,
        Option("REPO[:QUANT]", "ORG/REPO with a quant, as in :Q4_K_M, or one of `sharpi models`."),
    ],
    revision: Annotated[
        str | None, local_option("--revision REV", "A branch, tag or commit.", default="main")
    ] = None,
) -> None:
    """Download a model from the Hugging Face hub.

    The files go into the hub's own cache (HF_HOME), with every part of a split set, and are checked
    against the hub's checksums; an interrupted download is resumed. Prints the path of the file.
    Without QUANT, the only model is taken, or Q4_K_M, or what comes closest to it. Private and
    gated repositories need HF_TOKEN.
    """
    pulled = fetch(_with_revision(parse_name(name), revision))
    count = format_bytes(pulled.received_bytes)
    what = f"received {count}" if pulled.received_bytes else "it is already in the cache"
    print_stderr(f"{what}; now `sharpi run {pulled.name}`")
    print(pulled.start)


def _with_revision(name: ModelName, revision: str | None) -> ModelName:
    if revision is None:
        return name
    if name.revision not in (None, revision):
        raise UsageError(f"@{name.revision} and --revision both give the revision; keep one")
    return require_name(f"{ModelName(name.repository, name.quant)}@{revision}")


def rm(
    name: Annotated[str, Option("NAME", "A name as `sharpi list` prints it.")],
    yes: Annotated[bool, local_option("-y --yes", "Do not ask.")] = False,
) -> None:
    """Remove a model from the hub's cache.

    Content that another revision also uses stays. A program that runs the model keeps it until it
    exits.
    """
    from sharpi.hub.cache import Cache, Removal

    cache = Cache()
    models = _named(cache, parse_name(name))
    removal = Removal(cache, models)
    if not yes and not _is_sure(models[0].name, removal):
        raise typer.Exit(1)
    removal.carry_out()
    print(f"removed {models[0].name}: {_balance(removal)}")


def _named(cache: "Cache", name: ModelName) -> "list[CachedModel]":
    """Returns the cached revisions of the one model with this name; raises HubError otherwise."""
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
    return confirm(f"remove {name} ({_balance(removal)})?")


def _balance(removal: "Removal") -> str:
    shared = f", {format_bytes(removal.kept_bytes)} are shared and stay"
    return f"{format_bytes(removal.freed_bytes)} freed" + (shared if removal.kept_bytes else "")


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
    used = format_time(model.last_use_ns / 1e9)
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
