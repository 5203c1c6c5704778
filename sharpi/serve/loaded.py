"""Loaded: a model that is in memory now, and what schedules its answers."""

from dataclasses import dataclass

from sharpi.engine.engine import Engine
from sharpi.serve.serial_scheduler import SerialScheduler as Scheduler


@dataclass(frozen=True, slots=True)
class Loaded:
    """To be stepped and asked on the engine's thread alone."""

    engine: Engine
    scheduler: Scheduler
