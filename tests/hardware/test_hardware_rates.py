"""Rates of RAM and disk: positive, and measured with no more memory than can be spared."""

import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.hardware import rates as hardware_rates
from sharpi.hardware.memory import probe_memory
from sharpi.hardware.rates import CHUNK_BYTES, measure_disk, measure_ram_read


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware_rates, "SAMPLE_BYTES", 1 << 20)
    monkeypatch.setattr(hardware_rates, "TRIAL_BYTES", 4 * CHUNK_BYTES)


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


def test_a_folder_is_left_as_it_was(tmp_path: Path) -> None:
    assert measure_disk(tmp_path).bytes_per_second > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1, 4095, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
def test_files_of_any_size(tmp_path: Path, size: int) -> None:
    file = tmp_path / "m"
    file.write_bytes(bytes(size))
    assert measure_disk(file).bytes_per_second > 0
    assert measure_disk(file, seconds=0).bytes_per_second > 0


def test_a_file_system_without_direct_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def refuse_direct(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return really_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse_direct)
    (tmp_path / "m").write_bytes(bytes(10))
    rate = measure_disk(tmp_path / "m")
    assert not rate.is_direct
    assert rate.bytes_per_second > 0


def test_faults_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, message in (("none", "cannot be measured"), ("empty", "the file is empty")):
        with pytest.raises(UsageError, match=f"{name}: .*{message}"):
            measure_disk(tmp_path / name)
