"""Measures how fast GPUs read their memory, for dividing layers among them or among machines."""

from collections.abc import Sequence

from msgspec import Struct

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.tiers.gpu import RESERVE_BYTES

_BYTES_A_TRY = 256 << 20  # beyond any GPU's cache


class GpuRates(Struct, frozen=True):
    """The VRAM that one machine's GPUs have for layers, and the bytes per second of reading it."""

    num_bytes: int
    read_rate: float


NO_GPUS = GpuRates(0, 0.0)


def gpu_rates(devices: Sequence[Device], config: RunConfig) -> GpuRates:
    """Returns the VRAM that GPUs have for layers, and the measured rate of reading it.

    Buffers for steps, whose size is not known yet, are not subtracted.
    """
    limits = config.vrams or (config.vram,) * len(devices)
    free = [
        max(0, min(device.free_bytes, limit or device.free_bytes) - RESERVE_BYTES)
        for device, limit in zip(devices, limits, strict=False)
    ]
    if not sum(free):
        return NO_GPUS
    seconds = sum(own / _rate(device) for own, device in zip(free, devices, strict=False))
    return GpuRates(sum(free), sum(free) / seconds)


def measured_rates(devices: Sequence[Device]) -> tuple[float, ...]:
    """Returns bytes per second of each GPU; empty for one GPU, or if all are alike."""
    if len({device.name for device in devices}) < 2:
        return ()
    return tuple(map(_rate, devices))


def _rate(device: Device) -> float:
    from sharpi.ops.cuda.gpu_limits import filled_memory, read_bytes_per_second

    size = min(_BYTES_A_TRY, device.free_bytes // 2)
    return read_bytes_per_second(device, filled_memory(device, size // 16 * 16))
