"""Loaded: a model that is in memory now, and what schedules its answers."""

from dataclasses import field
from typing import Any

from sharpi.dataclass import dataclass
from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """To be stepped and asked on the engine's thread alone.

    `per_model_cache`, by their type: what requests make of the model once and want again. They go
    with it: what outlives an unloaded model keeps its file mapped.
    """

    engine: Engine
    scheduler: Scheduler
    per_model_cache: dict[type, Any] = field(default_factory=dict)
