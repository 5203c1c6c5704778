"""TierRequest: the user's settings for the plan, and sizes that the engine has chosen."""

from msgspec import Struct

from sharpi.config import Miss, RunConfig
from sharpi.hardware.info import HardwareInfo
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, pages_of
from sharpi.ops.cpu.program import Rounding
from sharpi.ops.state_layout import MAX_STATES, num_states


class TierRequest(Struct, frozen=True):
    """The settings and sizes from which a plan is computed; None lets the planner choose."""

    context_size: int
    batch_size: int = 512
    rounding: Rounding = "int8"
    num_threads: int = 1
    num_outputs: int = 1  # tokens of a step for which logits are computed
    checks_drafts: bool = False  # steps may check drafts
    ram: int | None = None  # bytes for weights, KV cache and buffers
    vram: int | None = None  # bytes of all GPUs together, for the same; None uses no GPU
    vrams: tuple[int, ...] = ()  # bytes of each GPU, if there are several
    vram_rates: tuple[float, ...] = ()  # bytes per second that each GPU reads, if measured
    tensor_split: tuple[float, ...] = ()  # the shares of the layers that these GPUs get
    uses_all_gpus: bool = False  # False uses only the first GPU if the model fits on it
    gpu_layers: int | None = None  # the most layers on the GPU
    moe_slots: int | None = None  # slots per layer, in the fastest tier that has slots
    cpu_moe: bool = False  # all layers keep their experts off the GPU
    num_cpu_moe: int = 0  # how many of the first layers keep their experts off the GPU
    miss: Miss = "auto"  # the miss mode
    gpu_scratch: int | None = None  # bytes of the GPU's buffers, if known
    # Bytes of each layer's KV cache on the GPU, if known.
    gpu_kv: tuple[int, ...] | None = None
    # the same with only `kv_first_pages`, if the cache can grow
    gpu_kv_first: tuple[int, ...] | None = None
    kv_first_pages: int = 0
    num_kv_pages: int | None = None  # pages of the KV cache; None means those of one context
    window_pages: int = 0  # pages of sliding-window layers; 0 means as many as other layers
    num_states: int = MAX_STATES  # copies of the recurrent states
    stash_page_tokens: int = 0  # tokens per page of the stash; 0 for a stash without pages
    stash_gpu_factor: float = 1.0  # pages on the GPU, as a multiple of those for the stash's tokens
    stash_cpu_factor: float = 0.0  # pages in RAM, as a multiple of the same number
    # For each layer, the cumulative shares of use of its most used experts; see `hit_rates`.
    use_shares: tuple[tuple[float, ...], ...] = ()
    fills_from_ram: bool = True  # the GPU may read experts from RAM
    learned_bytes: int = 0  # bytes per layer of the maps of the policy for slots in RAM
    least_learned_bytes: int = 0  # the same for the policy that is used if memory is short
    gpu_learned_bytes: int = 0  # bytes per layer of the maps of the policy for a GPU's slots

    @property
    def num_pages(self) -> int:
        """The number of pages of the KV cache, for all sequences."""
        return self.num_kv_pages or -(-self.context_size // PAGE_POSITIONS)

    def pages_of(self, *, has_window: bool) -> int:
        """Returns the number of pages of a layer's keys and values, with or without a window."""
        return pages_of(self.num_pages, self.window_pages, has_window=has_window)

    def keeps_off_gpu(self, index: int) -> bool:
        """Returns True if the user requested that a layer's experts stay off the GPU."""
        return self.cpu_moe or index < self.num_cpu_moe


def tier_request(
    config: RunConfig,
    hardware: HardwareInfo,
    *,
    context_size: int,
    batch_size: int,
    rounding: Rounding,
    num_threads: int,
    num_outputs: int = 1,
    num_kv_pages: int | None = None,
    max_drafts: int = 0,
    window_pages: int = 0,
) -> TierRequest:
    """Returns a request with the user's settings and the sizes that the engine has chosen.

    `num_threads`: threads of the pool. `num_outputs`: tokens of a step for which logits are
    computed. `num_kv_pages`: pages of all sequences. `window_pages`: pages of sliding-window
    layers. `max_drafts`: drafted tokens that a step checks.
    """
    experts, vrams = config.experts, _vrams(config, hardware)
    return TierRequest(
        context_size=context_size,
        batch_size=batch_size,
        rounding=rounding,
        num_threads=num_threads,
        num_outputs=num_outputs,
        checks_drafts=max_drafts > 0,
        ram=config.ram,
        vram=sum(vrams) or None,
        vrams=vrams if len(vrams) > 1 else (),
        vram_rates=hardware.vram_rates,
        tensor_split=config.tensor_split,
        uses_all_gpus=bool(config.gpus),
        gpu_layers=config.gpu_layers,
        moe_slots=config.moe_slots,
        cpu_moe=config.cpu_moe,
        num_cpu_moe=config.num_cpu_moe,
        miss=config.experts.miss,
        num_kv_pages=num_kv_pages,
        window_pages=window_pages,
        num_states=num_states(config.num_parallel, max_drafts),
        stash_page_tokens=experts.stash_page_tokens if experts.paged_stash else 0,
        stash_gpu_factor=experts.stash_gpu_factor if experts.paged_stash else 1.0,
        stash_cpu_factor=experts.stash_cpu_factor if experts.paged_stash else 0.0,
    )


def _vrams(config: RunConfig, hardware: HardwareInfo) -> tuple[int, ...]:
    """Returns the usable bytes of each GPU: the free ones, but at most the user's limit."""
    if config.device == "cpu":
        return ()
    free = hardware.free_vrams or (hardware.free_vram,)
    if len(free) < len(config.gpus):
        free = (*free, *free[:1] * len(config.gpus))[: len(config.gpus)]
    limits = config.vrams or (config.vram,) * len(free)
    return tuple(_limited(*each) for each in zip(limits, free, strict=False))


def _limited(limit: int | None, free: int) -> int:
    """Returns the smaller one of limit and free bytes; the limit if free bytes are unknown (0)."""
    return free if limit is None else min(limit, free or limit)
