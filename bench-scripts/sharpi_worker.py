"""The worker that computes with sharpi; started by contestant.py."""

from pathlib import Path
from typing import Any

import worker_loop

from sharpi import __version__
from sharpi.config import RunConfig
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence


class SharpiPlayer:
    """One sequence of one engine."""

    def __init__(self, settings: dict[str, Any]) -> None:
        config = RunConfig(
            model=Path(settings["model"]),
            context_size=settings["context_size"],
            num_threads=settings["num_threads"],
            batch_size=settings["batch_size"],
        )
        self._engine = load_engine(config)
        self._sequence = Sequence(self._engine.runner)
        chosen = self._engine.runner.settings
        self.description = {
            "version": __version__,
            "vocab_size": self._engine.runner.vocab_size,
            "instruction_set": chosen.instruction_set,
            "precision": chosen.rounding,
        }

    def compute(self, ids: list[int]) -> None:
        self._sequence.extend(ids)

    def truncate(self, length: int) -> None:
        self._sequence.truncate(length)


if __name__ == "__main__":
    worker_loop.play(SharpiPlayer)
