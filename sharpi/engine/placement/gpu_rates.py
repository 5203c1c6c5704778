"""Measures how fast different GPUs read their memory, for dividing the layers among them."""

from collections.abc import Sequence

from sharpi.device.device import Device

_BYTES_A_TRY = 256 << 20  # beyond any GPU's cache


def measured_rates(devices: Sequence[Device]) -> tuple[float, ...]:
    """Returns bytes per second of each GPU; empty for one GPU, or if all are alike."""
    if len({device.name for device in devices}) < 2:
        return ()
    from sharpi.ops.cuda.gpu_limits import filled_memory, read_bytes_per_second

    def rate(device: Device) -> float:
        size = min(_BYTES_A_TRY, device.free_bytes // 2)
        return read_bytes_per_second(device, filled_memory(device, size // 16 * 16))

    return tuple(map(rate, devices))
