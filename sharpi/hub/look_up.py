"""Finds the model in the cache that a model name refers to, without downloading."""

from sharpi.errors import HubError, close_matches
from sharpi.hub.cache import Cache
from sharpi.hub.cached_model import CachedModel
from sharpi.hub.choice import choose
from sharpi.hub.model_name import ModelName


def look_up(cache: Cache, name: ModelName) -> tuple[CachedModel, str | None]:
    """Returns the complete model that `name` refers to, and a note if the choice is uncertain.

    Raises HubError, which explains how to download the model or lists similar names, if the cache
    has no such model.
    """
    models = [model for model in models_of(cache, name) if model.is_complete]
    if not models:
        raise HubError(_missing(cache, name))
    try:
        chosen, note = choose(name, [model.variant for model in models], "in the cache")
    except HubError as error:
        raise HubError(f"{error}; or type `sharpi pull {name}`") from error
    return next(model for model in models if model.variant is chosen), note


def models_of(cache: Cache, name: ModelName) -> list[CachedModel]:
    """Returns the cached models, complete or not, of the repository and revision in `name`.

    If `name` has no revision, returns the models whose names have no revision either.
    """
    if name.revision is not None:
        return cache.revision_models(name.repository, name.revision)
    return [each for each in cache.models(name.repository) if each.name.revision is None]


def _missing(cache: Cache, name: ModelName) -> str:
    if any(not model.is_complete for model in models_of(cache, name)):
        return f"{name} is only partly in the cache; `sharpi pull {name}` fetches the rest"
    close = close_matches(name.repository, {model.name.repository for model in cache.all_models()})
    near = f"; close to it in the cache: {', '.join(close)}" if close else ""
    absent = "is neither a file nor in the cache" if name.quant is None else "is not in the cache"
    return f"{name} {absent}; type `sharpi pull {name}`{near}"
