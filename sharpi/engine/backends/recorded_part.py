"""RecordedPart: a model's part with its recorded steps, pages and states, on any processor."""

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from sharpi.engine.backends.model_part import HostBytes, StepRoutes, Values
from sharpi.ops.cpu.program import IntArray

P = TypeVar("P", bound=StepRoutes)


class PartCache(Protocol):
    """The keys and values of a part's layers."""

    @property
    def page_bytes(self) -> int: ...
    def copy_page(self, source: int, target: int) -> None: ...
    def read_page(self, page: int, target: HostBytes) -> None: ...
    def write_page(self, page: int, source: HostBytes) -> None: ...
    @property
    def partial_bytes(self) -> int: ...
    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None: ...
    def read_partial(self, page: int, target: HostBytes) -> None: ...
    def write_partial(self, page: int, source: HostBytes) -> None: ...


class PartStates(Protocol):
    """The states of a part's recurrent layers."""

    @property
    def state_bytes(self) -> int: ...
    def copy(self, source: int, target: int) -> None: ...
    def read(self, state: int, target: HostBytes) -> None: ...
    def write(self, state: int, source: HostBytes) -> None: ...


class RecordedPart(ABC, Generic[P]):
    """Records a program for each `max_outputs` at its first use; `_latest` is the last one run.

    The methods for pages and states are those of `ModelPart`.
    """

    _cache: PartCache
    _states: PartStates

    def __init__(self, num_outputs: int) -> None:
        self._num_outputs = num_outputs
        self._programs: dict[int, P] = {}
        self._latest: P | None = None

    @abstractmethod
    def _record(self, max_outputs: int) -> P:
        """Records the step with at most `max_outputs` outputs."""

    def _program(self, max_outputs: int) -> P:
        if max_outputs not in self._programs:
            self._programs[max_outputs] = self._record(max_outputs)
        return self._programs[max_outputs]

    def prepare(self) -> None:
        """Records the step of a generation now, instead of at its first token."""
        self._program(self._num_outputs)

    def interrupt(self, *, wanted: bool = True) -> None:
        """Does nothing: Python makes the launches, and can be interrupted between two of them."""

    @property
    def progress(self) -> float:
        """Returns 0, since the progress within a pass is not measured here."""
        return 0.0

    @property
    def routes(self) -> list[IntArray]:
        """The routes of the step that ran last."""
        return [] if self._latest is None else self._latest.routes

    @property
    def router_logits(self) -> list[Values]:
        """The router logits of the step that ran last, if they are kept."""
        return [] if self._latest is None else self._latest.router_logits

    def _settle(self, num_pages: int = 0) -> None:
        """Prepares for a use of pages or states between steps; there must be `num_pages` pages."""

    def copy_page(self, source: int, target: int) -> None:
        self._settle(1 + max(source, target))
        self._cache.copy_page(source, target)

    def copy_state(self, source: int, target: int) -> None:
        self._settle()
        self._states.copy(source, target)

    @property
    def page_bytes(self) -> int:
        return self._cache.page_bytes

    @property
    def state_bytes(self) -> int:
        return self._states.state_bytes

    def read_page(self, page: int, target: HostBytes) -> None:
        self._cache.read_page(page, target)

    def write_page(self, page: int, source: HostBytes) -> None:
        self._settle(1 + page)
        self._cache.write_page(page, source)

    def read_state(self, state: int, target: HostBytes) -> None:
        self._settle()
        self._states.read(state, target)

    def write_state(self, state: int, source: HostBytes) -> None:
        self._settle()
        self._states.write(state, source)

    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        """Frees a page's keys and values in sliding-window layers; see `KvCache.drop_windows`."""
        self._cache.drop_windows(page, is_before_free=is_before_free, is_after_free=is_after_free)

    @property
    def partial_bytes(self) -> int:
        """The bytes of one page, without those of sliding-window layers."""
        return self._cache.partial_bytes

    def read_partial(self, page: int, target: HostBytes) -> None:
        """Copies a page without sliding-window layers to `target`, (partial_bytes,)."""
        self._cache.read_partial(page, target)

    def write_partial(self, page: int, source: HostBytes) -> None:
        """Sets a page without sliding-window layers to what `read_partial` read."""
        self._settle(1 + page)
        self._cache.write_partial(page, source)
