"""The settings that a plan depends on: those decided for the engine, and what the user asks for."""

from typing import Annotated, TypeVar, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from sharpi.hardware.info import HardwareInfo
from sharpi.hardware.topology import ThreadPlace
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, pages_of
from sharpi.ops.cpu.program import Rounding
from sharpi.ops.recurrent import num_states
from sharpi.settings import Feature, KvTypes, RunConfig

T = TypeVar("T")
_OF_ALL_RANKS = "of all ranks"
# A setting that the first of several ranks decides for all of them.
OfAllRanks = Annotated[T, _OF_ALL_RANKS]


class EngineSettings(Struct, frozen=True):
    """The settings by which a loaded model is computed."""

    context_size: OfAllRanks[int]
    batch_size: OfAllRanks[int]  # tokens of one pass, at most
    rounding: OfAllRanks[Rounding]  # of activations
    instruction_set: str
    num_threads: int
    num_batch_threads: int
    notes: tuple[str, ...] = ()
    kv_notes: tuple[str, ...] = ()  # on a type of keys and values that was chosen
    kv_types: OfAllRanks[KvTypes] = KvTypes()
    kv_keep: int = 0  # positions of a longer prompt that each head keeps; 0: all
    window: int = 0  # the most positions of a sliding-window layer
    window_pages: OfAllRanks[int] = 0  # pages of keys and values of such a layer; 0: all
    num_parallel: OfAllRanks[int] = 1  # sequences of one step, at most
    num_kv_pages: OfAllRanks[int] = 0  # pages that they share; 0: those of one context
    capacity_factor: float | None = None  # of a GPU's rows for routed tokens; None: room for all
    disabled: tuple[Feature, ...] = ()  # what is switched off to find a fault
    places: tuple[ThreadPlace, ...] = ()  # the cores of each thread; empty: threads run anywhere
    max_drafts: OfAllRanks[int] = 0  # that a step checks, of all sequences together

    @property
    def num_outputs(self) -> int:
        """The maximum number of tokens of a decoding step whose logits are wanted."""
        return self.num_parallel + self.max_drafts

    @property
    def num_states(self) -> int:
        """The copies of the recurrent states."""
        return num_states(self.num_parallel, self.max_drafts)

    @property
    def pages_per_sequence(self) -> int:
        """The number of KV pages of a whole context."""
        return -(-self.context_size // PAGE_POSITIONS)

    @property
    def num_pages(self) -> int:
        """The number of pages of the KV cache."""
        return self.num_kv_pages or self.pages_per_sequence

    def pages_of(self, *, has_window: bool) -> int:
        """Returns the number of pages of a layer's keys and values, with or without a window."""
        return pages_of(self.num_pages, self.window_pages, has_window=has_window)

    def of_first_rank(self, first: "EngineSettings") -> "EngineSettings":
        """Returns these settings with those of the first rank where all ranks share them."""
        hints = get_type_hints(EngineSettings, include_extras=True)
        shared = {
            name: getattr(first, name)
            for name, kind in hints.items()
            if _OF_ALL_RANKS in getattr(kind, "__metadata__", ())
        }
        return replace(self, **shared)


class KnownSizes(Struct, frozen=True):
    """Sizes in bytes that policies and recorded steps tell; the planner estimates what is None."""

    gpu_scratch: int | None = None  # the GPU's buffers
    gpu_kv: tuple[int, ...] | None = None  # each layer's KV cache on the GPU
    # the same with only `kv_first_pages`, if the cache can grow
    gpu_kv_first: tuple[int, ...] | None = None
    kv_first_pages: int = 0
    learned_bytes: int = 0  # per layer, the maps of the policy for slots in RAM
    least_learned_bytes: int = 0  # the same for the policy that is used if memory is short
    gpu_learned_bytes: int = 0  # per layer, the maps of the policy for a GPU's slots


NO_SIZES = KnownSizes()


class PlanRequest(Struct, frozen=True):
    """All that a plan depends on beside the model's sizes and the RAM."""

    config: RunConfig
    settings: EngineSettings
    sizes: KnownSizes
    vrams: tuple[int, ...] = ()  # the usable bytes of each GPU
    vram_rates: tuple[float, ...] = ()  # bytes per second that each GPU reads, if measured
    fills_from_ram: bool = True  # the GPU may read experts from RAM
    kv: tuple[int, ...] = ()  # bytes of each layer's keys, values and states on the CPU
    scratch: int = 0  # bytes of the CPU's buffers

    @property
    def vram(self) -> int:
        """The usable bytes of all GPUs together."""
        return sum(self.vrams)

    @property
    def gpu_kv(self) -> tuple[int, ...]:
        """The bytes of each layer's keys, values and states on a GPU."""
        return self.kv if self.sizes.gpu_kv is None else self.sizes.gpu_kv

    @property
    def gpu_scratch(self) -> int:
        """The bytes of a GPU's buffers."""
        return self.scratch if self.sizes.gpu_scratch is None else self.sizes.gpu_scratch

    def kv_at_start(self, *, grows: bool) -> tuple[int, ...]:
        """Returns `gpu_kv`, or what it is at the start if the cache grows."""
        return self.sizes.gpu_kv_first if grows and self.sizes.gpu_kv_first else self.gpu_kv

    def keeps_off_gpu(self, index: int) -> bool:
        """Returns True if the user requested that a layer's experts stay off the GPU."""
        return self.config.cpu_moe or index < self.config.num_cpu_moe


def usable_vrams(config: RunConfig, hardware: HardwareInfo) -> tuple[int, ...]:
    """Returns the usable bytes of each GPU, within the user's limit; empty without any."""
    if config.device == "cpu":
        return ()
    free = hardware.free_vrams or (hardware.free_vram,)
    if len(free) < len(config.gpus):
        free = (*free, *free[:1] * len(config.gpus))[: len(config.gpus)]
    limits = config.vrams or (config.vram,) * len(free)
    vrams = tuple(_limited(*each) for each in zip(limits, free, strict=False))
    return vrams if any(vrams) else ()


def _limited(limit: int | None, free: int) -> int:
    """Returns the smaller one of limit and free bytes; the limit if free bytes are unknown (0)."""
    return free if limit is None else min(limit, free or limit)
