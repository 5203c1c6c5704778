"""Chooses the types of keys and values: f16 where there is room, rotated q8_0 where not."""

from sharpi.config import KvTypes, RunConfig
from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.tensor_summary import is_routed
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import check_kv_types, kv_bytes
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
    """Returns the requested types, or those that fit `num_positions`, and a note on a choice.

    Nothing below q8_0 is ever chosen here. `window_pages` is as for `kv_bytes`.
    """
    if config.kv_type or config.key_type or config.value_type:
        both = config.kv_type or "f16"
        return KvTypes(config.key_type or both, config.value_type or both), ()
    needed = kv_bytes(model.attention, num_positions, _F16, window_pages)
    room = _room(config, file, hardware)
    if needed <= room or not _takes_q8(model):
        return _F16, ()
    halved = format_bytes(kv_bytes(model.attention, num_positions, _Q8_0, window_pages))
    return _Q8_0, (
        f"keys and values are q8_0, {halved}: f16 would take {format_bytes(needed)}, and"
        f" {format_bytes(room)} are left beside the dense weights; --kv-type f16 takes it anyway",
    )


def _room(config: RunConfig, file: GgufFile, hardware: HardwareInfo) -> int:
    """Returns the bytes of RAM that dense weights leave free; routed experts may stay on disk."""
    ram = default_ram(hardware) if config.ram is None else config.ram
    dense = sum(t.num_bytes for name, t in file.tensors.items() if not is_routed(name))
    return max(0, ram - dense)


def _takes_q8(model: ModelConfig) -> bool:
    try:
        check_kv_types(model.attention, _Q8_0)
    except UsageError:
        return False
    return True
