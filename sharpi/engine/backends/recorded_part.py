"""RecordedPart: a model's part with its recorded steps, pages and states, on any processor."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from sharpi.engine.backends.model_part import StepRoutes, Values
from sharpi.ops.cpu.kv_cache import KvCache, StateMemory
from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.ops.cuda.gpu_weights import GpuStates
    from sharpi.ops.cuda.kv_cache import GpuKvCache

P = TypeVar("P", bound=StepRoutes)


# The keys and values of a part's layers, and the states of its recurrent layers.
PartCache: TypeAlias = "KvCache | GpuKvCache"
PartStates: TypeAlias = "StateMemory | GpuStates"


class RecordedPart(ABC, Generic[P]):
    """A part that records a program for each `max_outputs` at its first use, and replays it.

    `cache` has the keys and values of its layers, and `states` the states of its recurrent layers.
    With `is_host_memory` any thread may read both while no step writes to them. `_latest` is the
    program that ran last.
    """

    cache: PartCache
    states: PartStates
    is_host_memory: bool

    def __init__(self, num_outputs: int) -> None:
        self._num_outputs = num_outputs
        self._programs: dict[int, P] = {}
        self._latest: P | None = None

    @abstractmethod
    def _record(self, max_outputs: int) -> P:
        """Returns a program recorded for steps of at most `max_outputs` outputs."""

    def _program(self, max_outputs: int) -> P:
        if max_outputs not in self._programs:
            self._programs[max_outputs] = self._record(max_outputs)
        return self._programs[max_outputs]

    def prepare(self) -> None:
        """Records the decode program now, so that the first token does not wait for it."""
        self._program(self._num_outputs)

    def interrupt(self, *, wanted: bool = True) -> None:
        """Does nothing: Python launches the kernels, and can be interrupted between launches."""

    @property
    def is_ahead(self) -> bool:
        """False: only a GPU begins a step before the host knows the step's token."""
        return False

    @property
    def progress(self) -> float:
        """0, since the progress within a pass is not measured here."""
        return 0.0

    @property
    def routes(self) -> list[IntArray]:
        """The routes of the step that ran last."""
        return [] if self._latest is None else self._latest.routes

    @property
    def router_logits(self) -> list[Values]:
        """The router logits of the step that ran last, if they are kept."""
        return [] if self._latest is None else self._latest.router_logits

    def prepare_change(self, num_pages: int = 0) -> None:
        """Prepares for a change of pages or states between two steps, and must precede it.

        Makes the KV cache have at least `num_pages` pages, if it can grow.
        """
