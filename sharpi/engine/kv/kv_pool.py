"""Sizes the KV cache that several sequences share: one context for each, where there is room."""

from sharpi.config import KvTypes, RunConfig
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, kv_bytes
from sharpi.tiers.planner import default_ram

# Where the weights fill the memory, one part in so many of it is worth more as KV cache than as
# room for experts.
_KV_SHARE = 8


def kv_pages(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    hardware: HardwareInfo,
    pages_per_sequence: int,
    types: KvTypes,
    window_pages: int = 0,
) -> tuple[int, tuple[str, ...]]:
    """Returns the number of pages for all sequences, at least one context's, and notes on it.

    `window_pages` is as for `kv_bytes`.
    """
    wanted = config.num_parallel * pages_per_sequence
    window_pages = window_pages if window_pages < wanted else 0
    in_windows = [shape for shape in model.attention if shape.window and window_pages]
    others = [shape for shape in model.attention if shape not in in_windows]
    page_bytes = kv_bytes(others, PAGE_POSITIONS, types)
    if config.num_parallel == 1 or not page_bytes:
        return wanted, ()
    weights = sum(tensor.num_bytes for tensor in file.tensors.values())
    free_bytes = min(_free_bytes(memory, weights) for memory in _memories(config, hardware))
    free_bytes = max(0, free_bytes - kv_bytes(in_windows, window_pages * PAGE_POSITIONS, types))
    pages = max(pages_per_sequence, min(wanted, free_bytes // page_bytes))
    if pages == wanted:
        return pages, ()
    return pages, (
        f"the KV cache has room for {pages * PAGE_POSITIONS} positions, not for a whole context of"
        f" each of {config.num_parallel} sequences; when they are long, the newest ones wait",
    )


def _memories(config: RunConfig, hardware: HardwareInfo) -> list[int]:
    """Returns the bytes of RAM and, if a GPU may be used, of VRAM.

    The pages of all layers may have to fit into each of them.
    """
    memories = [default_ram(hardware) if config.ram is None else config.ram]
    vram = config.vram or hardware.free_vram
    if config.device != "cpu" and vram:
        memories.append(vram)
    return memories


def _free_bytes(memory: int, weights: int) -> int:
    return max(memory - weights, memory // _KV_SHARE)
