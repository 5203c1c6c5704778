"""Rates of memory: positive, and measured with no more memory than can be spared."""

import pytest
from msgspec.structs import replace

from sharpi.hardware import rates as hardware_rates
from sharpi.hardware.memory import probe_memory
from sharpi.hardware.rates import measure_ram_copy, measure_ram_read


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware_rates, "SAMPLE_BYTES", 1 << 20)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_copying(num_threads: int) -> None:
    assert measure_ram_copy(num_threads) > 0


@pytest.mark.native
def test_reading() -> None:
    assert measure_ram_read(1) > 0


@pytest.mark.parametrize(("free", "sample"), [(400_000, 100_000), (1 << 30, 1 << 20), (0, 4096)])
def test_a_tight_limit_shrinks_the_sample(
    monkeypatch: pytest.MonkeyPatch, free: int, sample: int
) -> None:
    info = replace(probe_memory(), free=free)
    monkeypatch.setattr(hardware_rates, "probe_memory", lambda: info)
    assert hardware_rates._sample_bytes() == sample
