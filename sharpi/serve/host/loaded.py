"""Loaded: a model in memory, with the scheduler of its answers."""

from typing import Any

from msgspec import Struct, field

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler


class Loaded(Struct, frozen=True, eq=False):
    """To be stepped and asked on the engine's thread alone.

    `per_model_cache`, by their type: what requests make of the model once and want again. They go
    with it: what outlives an unloaded model keeps its file mapped.
    """

    engine: Engine
    scheduler: Scheduler
    per_model_cache: dict[type, Any] = field(default_factory=dict)
