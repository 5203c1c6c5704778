"""Parses `--sharpi key=value` into fields of RunConfig and ExpertConfig for sharpi_worker.py."""

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from sharpi.config import ExpertConfig, RunConfig
from sharpi.errors import UsageError
from sharpi.units import parse_size

_SIZES = ("ram", "vram")
_TAKEN = ("model", "experts", "num_threads", "context_size")


def sharpi_options(texts: Iterable[str]) -> dict[str, Any]:
    """Returns the fields by name; those of ExpertConfig are in a dictionary "experts".

    `["ram=2GB", "policy=slru"]` becomes `{"ram": 2000000000, "experts": {"policy": "slru"}}`.
    Raises UsageError for a name that is no field of either class.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in _names(RunConfig) and name not in _TAKEN:
            options[name] = _value(name, value)
        elif name in _names(ExpertConfig):
            options.setdefault("experts", {})[name] = _value(name, value)
        else:
            raise UsageError(f"--sharpi {text}: no such setting; write it like policy=slru")
    return options


def _names(config: type[Struct]) -> set[str]:
    return set(config.__struct_fields__)


def _value(name: str, text: str) -> Any:
    """Parses a size or a JSON value such as `8` or `false`; returns any other text unchanged."""
    if name in _SIZES:
        return parse_size(text)
    try:
        return json.loads(text)
    except ValueError:
        return text
