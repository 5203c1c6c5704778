"""Chooses the types of keys and values: f16 where there is room, otherwise rotated q8_0."""

from collections.abc import Collection

from sharpi.config import KvTypes, RunConfig
from sharpi.engine.kv.gpu_kv_choice import choose_on_gpu
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.summary import is_routed, layer_of
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import kv_bytes, supports_kv_types
from sharpi.tiers.planner import default_ram
from sharpi.units import format_bytes

_F16, _Q8_0 = KvTypes("f16", "f16"), KvTypes("q8_0", "q8_0")


def choose_kv_types(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    hardware: HardwareInfo,
    num_positions: int,
    window_pages: int = 0,
) -> tuple[KvTypes, tuple[str, ...]]:
    """Returns the requested types, or else types that fit `num_positions`, with a note on them.

    On GPUs, f16 has to leave as much room as q8_0 for layers and for the recommended expert slots.
    No type smaller than q8_0 is ever chosen here. `window_pages` is as for `kv_bytes`.
    """
    if config.kv_type or config.key_type or config.value_type:
        both = config.kv_type or "f16"
        return KvTypes(config.key_type or both, config.value_type or both), ()
    on_gpu = choose_on_gpu(config, file, model, hardware, num_positions, window_pages)
    reason = on_gpu.why_not_f16
    if reason is None:
        shapes = [shape for shape in model.attention if shape.layer not in on_gpu.layers]
        needed = kv_bytes(shapes, num_positions, _F16, window_pages)
        reason = _why_not_in_ram(needed, _free_bytes(config, file, hardware, on_gpu.layers))
    if reason is None or not supports_kv_types(model.attention, _Q8_0):
        return _F16, ()
    halved = format_bytes(kv_bytes(model.attention, num_positions, _Q8_0, window_pages))
    return _Q8_0, (f"keys and values are q8_0, {halved}: {reason}; --kv-type f16 takes it anyway",)


def _why_not_in_ram(needed: int, free_bytes: int) -> str | None:
    if needed <= free_bytes:
        return None
    return (
        f"f16 would take {format_bytes(needed)}, and {format_bytes(free_bytes)} are left beside the"
        " dense weights"
    )


def _free_bytes(
    config: RunConfig, file: GgufFile, hardware: HardwareInfo, on_gpu: Collection[int]
) -> int:
    """Returns the bytes of RAM that the dense weights leave free.

    Routed experts are not counted, as they may stay on disk.
    """
    ram = default_ram(hardware) if config.ram is None else config.ram
    tensors = file.tensors.items()
    dense = sum(t.num_bytes for name, t in tensors if _is_dense_in_ram(name, on_gpu))
    return max(0, ram - dense)


def _is_dense_in_ram(name: str, on_gpu: Collection[int]) -> bool:
    return not is_routed(name) and layer_of(name) not in on_gpu
