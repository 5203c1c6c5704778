"""`sharpi list`: the models in the cache."""

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sharpi.cli.output.terminal import fitted
from sharpi.cli.shared_options import JsonOption
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.hub.cache import CachedModel


def list_models(as_json: JsonOption = False) -> None:
    """List the models in the hub's cache.

    run, chat, serve and the other commands take these names. A model that is not complete is
    marked; `sharpi pull` resumes its download and `sharpi rm` removes it.
    """
    from sharpi.hub.cache import Cache, default_cache_folder

    cache = Cache(default_cache_folder())
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
    width = max(len(str(model.name)) for model in models)
    print(f"{'name':<{width}}  {'size':>10}  modified")
    for model in models:
        print(
            f"{model.name!s:<{width}}  {format_bytes(model.size):>10}  {_day(model)}"
            + ("" if model.is_complete else "  incomplete")
        )


def _day(model: "CachedModel") -> str:
    return datetime.fromtimestamp(model.modified).strftime("%Y-%m-%d %H:%M")


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
