"""RecordedPart: recorded steps, pages and states of layers; ModelMemory: those of all parts."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct

from sharpi.engine.backends.model_part import HostBytes, ModelPart, RemoteLayers, StepRoutes, Values
from sharpi.model.config import ModelConfig
from sharpi.model.transformer import Transformer
from sharpi.model.weights import ModelWeights
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, KvCache, StateMemory
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import IntArray, ProgramLimits
from sharpi.ops.interface import Ops, X
from sharpi.ops.recurrent import RecurrentShape
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.ops.cuda.gpu_weights import GpuStates
    from sharpi.ops.cuda.kv_cache import GpuKvCache


P = TypeVar("P", bound=StepRoutes)

# The keys and values of a part's layers, and the states of its recurrent layers.
PartCache: TypeAlias = "KvCache | GpuKvCache"
PartStates: TypeAlias = "StateMemory | GpuStates"


class PartModel(Struct, frozen=True, eq=False):
    """The layers of a model that a part runs, and what it computes before and after them."""

    config: ModelConfig
    weights: ModelWeights
    settings: EngineSettings
    layers: range
    embeds: bool = True  # else an earlier part gives the input
    has_output: bool = True  # computes the logits
    keeps_router_logits: bool = False
    keeps_hidden: bool = False  # the hidden states of all tokens after the output norm

    @property
    def gives_outputs(self) -> bool:
        """True if the result has a row for each output, not for each token."""
        return self.layers.stop == self.config.num_layers

    @property
    def takes_outputs(self) -> bool:
        """True if the input has a row for each output, not for each token."""
        return not self.layers and not self.keeps_hidden

    @property
    def attention(self) -> list[AttentionShape]:
        """The keys and values of the part's layers."""
        return [shape for shape in self.config.attention if shape.layer in self.layers]

    @property
    def states(self) -> list[RecurrentShape]:
        """The states of the part's recurrent layers."""
        return [shape for shape in self.config.states if shape.layer in self.layers]

    def record(self, recorder: Ops[X], incoming: Callable[[], X]) -> tuple[X, X | None]:
        """Records a step; returns its result and the hidden states, None unless they are kept."""
        model: Transformer[X] = Transformer(
            self.config, self.weights, recorder,
            trims_last_layer=not self.keeps_router_logits, keeps_hidden=self.keeps_hidden,
        )  # fmt: skip
        x = model.embed() if self.embeds else incoming()
        x = model.layers(x, self.layers) if self.layers else x
        return model.logits(x) if self.has_output else x, model.hidden


class RecordedPart(ModelPart, Generic[P]):
    """A part that records a program for each `max_outputs` at its first use, and replays it."""

    cache: PartCache
    states: PartStates
    is_host_memory: bool

    def __init__(self, own: PartModel) -> None:
        self._own, self._settings = own, own.settings
        self._programs: dict[int, P] = {}
        self._latest: P | None = None  # the program that ran last

    @abstractmethod
    def _record(self, max_outputs: int) -> P:
        """Returns a program recorded for steps of at most `max_outputs` outputs."""

    def _program(self, max_outputs: int) -> P:
        if max_outputs not in self._programs:
            self._programs[max_outputs] = self._record(max_outputs)
        return self._programs[max_outputs]

    def prepare(self) -> None:
        """Records the decode program now, so that the first token does not wait for it."""
        self._program(self._settings.num_outputs)

    @property
    def routes(self) -> list[IntArray]:
        return [] if self._latest is None else self._latest.routes

    @property
    def router_logits(self) -> list[Values]:
        return [] if self._latest is None else self._latest.router_logits

    def prepare_change(self, num_pages: int = 0) -> None:
        """Must precede a change between steps; grows a KV cache that can grow to `num_pages`."""


T = TypeVar("T")


class ModelMemory:
    """Copies, reads and writes KV pages and recurrent states in all parts, and in an MTP head.

    Other machines copy and drop as told here. With `drops_windows`, a page may lack sliding-window
    layers. `is_host_memory`: any thread may read while no step writes.
    """

    def __init__(
        self,
        parts: Sequence[ModelPart],
        head_pages: "PartCache | None",
        remote: RemoteLayers | None,
        *,
        drops_windows: bool,
    ) -> None:
        self._parts = [part for part in parts if isinstance(part, RecordedPart)]
        self._remote, self._drops_windows = remote, drops_windows
        self._caches: list[PartCache] = [part.cache for part in self._parts]
        self._caches += [] if head_pages is None else [head_pages]
        self._states: list[PartStates] = [part.states for part in self._parts]
        self.is_host_memory = remote is None and all(part.is_host_memory for part in self._parts)

    def _prepare_change(self, num_pages: int = 0) -> None:
        for part in self._parts:
            part.prepare_change(num_pages)

    def copy_page(self, source: int, target: int) -> None:
        """Copies a page of the KV cache to another, in all layers."""
        self._prepare_change(1 + max(source, target))
        for cache in self._caches:
            cache.copy_page(source, target)
        if self._remote is not None:
            self._remote.copy_page(source, target)

    def drop_windows(self, page: int, is_before_free: bool, is_after_free: bool) -> None:
        free = {"is_before_free": is_before_free, "is_after_free": is_after_free}
        for cache in self._caches:
            cache.drop_windows(page, **free)
        if self._remote is not None:
            self._remote.drop_windows(page, **free)

    def copy_state(self, source: int, target: int) -> None:
        """Copies a recurrent state to another one, in all recurrent layers."""
        self._prepare_change()
        for states in self._states:
            states.copy(source, target)
        if self._remote is not None:
            self._remote.copy_state(source, target)

    @property
    def page_bytes(self) -> int:
        return sum(cache.page_bytes for cache in self._caches)

    @property
    def state_bytes(self) -> int:
        return sum(states.state_bytes for states in self._states)

    @property
    def partial_bytes(self) -> int:
        """Bytes of one page without sliding-window layers; 0 where these keep all pages."""
        return sum(cache.partial_bytes for cache in self._caches if self._drops_windows)

    def read_page(self, page: int, target: HostBytes, *, is_partial: bool = False) -> None:
        """Copies a page of all layers, or those without windows, to `target`, (its bytes,)."""
        for cache, own in _shares(target, self._caches, _size_of_page(is_partial=is_partial)):
            cache.read_page(page, own, is_partial=is_partial)

    def write_page(self, page: int, source: HostBytes, *, is_partial: bool = False) -> None:
        """Overwrites a page with the bytes that `read_page` has read, in the same layers."""
        self._prepare_change(1 + page)
        for cache, own in _shares(source, self._caches, _size_of_page(is_partial=is_partial)):
            cache.write_page(page, own, is_partial=is_partial)

    def read_state(self, state: int, target: HostBytes) -> None:
        """Copies a state of all recurrent layers to `target`, (state_bytes,)."""
        self._prepare_change()
        for states, own in _shares(target, self._states, lambda each: each.state_bytes):
            states.read(state, own)

    def write_state(self, state: int, source: HostBytes) -> None:
        """Overwrites a state in all recurrent layers with bytes that `read_state` has read."""
        self._prepare_change()
        for states, own in _shares(source, self._states, lambda each: each.state_bytes):
            states.write(state, own)


def _shares(
    data: HostBytes, owners: Iterable[T], size: Callable[[T], int]
) -> Iterator[tuple[T, HostBytes]]:
    """Yields each owner with its part of `data`; `size` returns the bytes of an owner's part."""
    at = 0
    for owner in owners:
        yield owner, data[at : at + size(owner)]
        at += size(owner)


def _size_of_page(*, is_partial: bool) -> Callable[[PartCache], int]:
    return lambda cache: cache.partial_bytes if is_partial else cache.page_bytes


def new_pool(settings: EngineSettings) -> ThreadPool:
    """Starts the threads on which a part runs."""
    return ThreadPool(max(settings.num_threads, settings.num_batch_threads), settings.places)


def program_limits(
    settings: EngineSettings, max_tokens: int, max_outputs: int, *, drops_keys: bool = False
) -> ProgramLimits:
    """Returns limits for steps of at most `max_tokens` tokens and `max_outputs` outputs."""
    return ProgramLimits(
        max_tokens=max_tokens,
        max_outputs=max_outputs,
        max_positions=settings.pages_per_sequence * PAGE_POSITIONS,
        precision=settings.rounding,
        instruction_set=settings.instruction_set,
        shares_rows=len({place.node for place in settings.places}) > 1,
        drops_keys=drops_keys,
    )
