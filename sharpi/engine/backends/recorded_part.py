"""What the parts of a model do with their recorded steps, whatever processor runs these."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from sharpi.engine.backends.model_part import StepRoutes, Values
from sharpi.ops.cpu.program import IntArray

P = TypeVar("P", bound=StepRoutes)


class RecordedPart(ABC, Generic[P]):
    """A program for each number of outputs, recorded at its first use; `_latest` ran last."""

    def __init__(self, num_parallel: int) -> None:
        self._num_parallel = num_parallel
        self._programs: dict[int, P] = {}
        self._latest: P | None = None

    @abstractmethod
    def _record(self, max_outputs: int) -> P:
        """The step with so many outputs at most."""

    def _program(self, max_outputs: int) -> P:
        if max_outputs not in self._programs:
            self._programs[max_outputs] = self._record(max_outputs)
        return self._programs[max_outputs]

    def prepare(self) -> None:
        """Records the step of a generation now rather than at its first token."""
        self._program(self._num_parallel)

    @property
    def routes(self) -> list[IntArray]:
        """Those of the step that ran last."""
        return [] if self._latest is None else self._latest.routes

    @property
    def router_logits(self) -> list[Values]:
        """Those of the step that ran last, where they are kept."""
        return [] if self._latest is None else self._latest.router_logits
