"""The worker that runs sharpi; contestant.py starts it.

`options`: fields of RunConfig; "experts" is a dictionary with fields of ExpertConfig. The variant
"mapped" uses the mapped file, however little RAM is free.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest import worker_loop

from sharpi import __version__
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers import planner


class SharpiModel:
    """A `Model` that computes one sequence in an engine."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._engine = load_engine(_config(**settings))
        self._sequence = Sequence(self._engine.runner)
        chosen = self._engine.runner.settings
        self.description = {
            "version": __version__,
            "vocab_size": self._engine.runner.vocab_size,
            "instruction_set": chosen.instruction_set,
            "precision": chosen.rounding,
            "notes": self._engine.notes,
        }

    def compute(self, ids: list[int]) -> None:
        self._sequence.extend(ids)

    def truncate(self, length: int) -> None:
        self._sequence.truncate(length)

    def counts(self) -> dict[str, float]:
        stats = self._engine.expert_stats()
        if stats is None:
            return {}
        return {
            "accesses": stats.total.hit_count.accesses,
            "hits": stats.total.hit_count.hits,
            "late": stats.total.late,
            "loads": stats.total.loads,
            "read_bytes": stats.bytes_read,
            "wasted_bytes": stats.total.wasted_bytes,
            "stall_seconds": stats.total.stall_seconds,
        }


def _config(
    model: str,
    num_threads: int,
    context_size: int,
    batch_size: int,
    variant: str,
    options: dict[str, Any],
) -> RunConfig:
    if variant == "mapped":
        planner.default_ram = lambda hardware: 1 << 50
        options = {"ram": 1 << 50} | options
    experts = ExpertConfig(**options.pop("experts", {}))
    sizes = {"num_threads": num_threads, "context_size": context_size, "batch_size": batch_size}
    return RunConfig(model=Path(model), experts=experts, **(sizes | options))


if __name__ == "__main__":
    worker_loop.run(SharpiModel)
