"""The error for an unknown model, with similar names and the command to type."""

from pathlib import Path

from sharpi.errors import UsageError, close_matches

_MOST_CLOSE = 3


def unknown_model(text: str, *, prompt: str | None = None) -> UsageError:
    """Returns the error for `text`, which is neither a file nor a model's name.

    If `text` may begin a prompt, `prompt` is the complete prompt for a hint.
    """
    close = _close(text)
    meant = f"; did you mean {' or '.join(close)}?" if close else ";"
    hint = "`sharpi pull ORG/REPO:QUANT` fetches a model, and `sharpi models` names some"
    if prompt is not None:
        hint += f"; if it is the prompt, write sharpi run -p {_quoted(prompt)}"
    return UsageError(f"'{text}' is neither a file nor the name of a model{meant} {hint}")


def _close(text: str) -> list[str]:
    """Returns up to three similar names of models: files here, cached and well-known models."""
    from sharpi.hub.cache import Cache, default_cache_folder
    from sharpi.hub.catalogue import short_names

    files = [each.name for each in Path().iterdir() if each.suffix.lower() == ".gguf"]
    models = [str(model.name) for model in Cache(default_cache_folder()).all_models()]
    stems = {name.partition("/")[2].lower(): name for name in models}
    word = text.lower()
    within = [name for stem, name in stems.items() if word in stem]
    names = [*close_matches(text, files), *within, *close_matches(text, [*models, *short_names()])]
    return list(dict.fromkeys(names))[:_MOST_CLOSE]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
