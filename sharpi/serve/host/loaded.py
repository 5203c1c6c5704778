"""Loaded: a model in memory, with the scheduler of its answers."""

from typing import Any

from msgspec import Struct, field

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler


class Loaded(Struct, frozen=True, eq=False):
    """A loaded model; only the engine's thread steps it and reads it."""

    engine: Engine
    scheduler: Scheduler
    # Objects that requests build once per model, by type; dropped with the model, since they would
    # keep its file mapped.
    per_model_cache: dict[type, Any] = field(default_factory=dict)
