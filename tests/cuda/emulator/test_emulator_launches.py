"""The arguments that launches and the emulated device accept and refuse."""

import re
from pathlib import Path

import numpy as np
import pytest
from check_samples import PERIOD, SAMPLES, CheckSamples
from cpu_device import CpuDevice
from cpu_kernel import LaunchError
from cpu_memory import host_bytes
from gpu_twins import devices
from small_kernels import SmallKernels, integers

from sharpi.device.device import Device
from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.errors import DeviceError
from sharpi.resources import kernels_folder

KERNELS = SmallKernels("memory")
GOOD: tuple[Argument, ...] = (None, np.int32(1), np.float32(2), np.int64(3))


def test_arguments() -> None:
    KERNELS.run("takes", *GOOD, writes=[])
    KERNELS.run("takes", integers([1]), *GOOD[1:], writes=[])


@pytest.mark.parametrize(
    ("index", "value", "says"),
    [
        (0, np.int64(0), "argument 0 is i8, the kernel takes p8"),
        (1, 1, "argument 1 is int, the kernel takes i4"),
        (1, np.int64(1), "argument 1 is i8, the kernel takes i4"),
        (1, np.float32(1), "argument 1 is f4, the kernel takes i4"),
        (1, None, "argument 1 is p8, the kernel takes i4"),
        (2, 2.0, "argument 2 is float, the kernel takes f4"),
        (3, np.int32(3), "argument 3 is i4, the kernel takes i8"),
    ],
)
def test_an_argument_of_another_kind(index: int, value: Argument, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        KERNELS.run("takes", *GOOD[:index], value, *GOOD[index + 1 :], writes=[])


def test_the_wrong_number_of_arguments() -> None:
    with pytest.raises(LaunchError, match="3 arguments, the kernel takes 4"):
        KERNELS.run("takes", *GOOD[:3], writes=[])


def test_no_such_entry_point() -> None:
    with pytest.raises(LaunchError, match="none: no such entry point"):
        KERNELS.run("none")


def test_memory_is_aligned_and_unset() -> None:
    for num_bytes in (0, 1, 1000):
        memory = CpuDevice().allocate(num_bytes)
        assert (memory.address % 256, memory.num_bytes) == (0, num_bytes)
        assert (host_bytes(Span(memory, 0, num_bytes)) == 0xFF).all()


def test_memory_runs_out_and_comes_back() -> None:
    device = CpuDevice(memory_bytes=1000)
    memory = device.allocate(600)
    assert (memory.num_bytes, device.free_bytes) == (600, 400)
    with pytest.raises(DeviceError, match="400 bytes left, not 401"):
        device.allocate(401)
    del memory
    assert device.free_bytes == 1000


def test_upload_and_download() -> None:
    device = CpuDevice()
    span = Span(device.allocate(64), 16, 24)
    device.upload(span, np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2])
    out = np.empty((3, 2), np.float32)
    device.download(span, out)
    np.testing.assert_array_equal(out, [[0, 2], [4, 6], [8, 10]])


def test_mapped_memory_is_the_hosts() -> None:
    memory, host = CpuDevice().mapped(8)
    host[:4] = [1, 2, 3, 4]
    out = np.empty(4, np.uint8)
    CpuDevice().download(Span(memory, 0, 4), out)
    np.testing.assert_array_equal(out, [1, 2, 3, 4])


def test_matmul() -> None:
    device, random = CpuDevice(), np.random.default_rng(0)
    x, weights = (random.normal(size=(n, 5)).astype(np.float16) for n in (3, 4))
    spans = [Span(device.allocate(n), 0, n) for n in (x.nbytes, weights.nbytes, 24)]
    device.upload(spans[0], x)
    device.upload(spans[1], weights)
    device.matmul(spans[0], spans[1], spans[2], (3, 4, 5))
    out = np.empty((3, 4), np.float16)
    device.download(spans[2], out)
    want = x.astype(np.float64) @ weights.astype(np.float64).T
    np.testing.assert_allclose(out, want, rtol=2**-10, atol=1e-6)


def test_batched_matmul() -> None:
    device, random = CpuDevice(), np.random.default_rng(0)
    x, weights = (random.normal(size=(*n, 5)).astype(np.float16) for n in ((3, 2), (2, 4)))
    spans = [Span(device.allocate(n), 0, n) for n in (x.nbytes, weights.nbytes, 48)]
    device.upload(spans[0], x)
    device.upload(spans[1], weights)
    device.batched_matmul(spans[0], spans[1], spans[2], (3, 2, 4, 5))
    out = np.empty((3, 2, 4), np.float16)
    device.download(spans[2], out)
    for head in range(2):
        want = x[:, head].astype(np.float64) @ weights[head].astype(np.float64).T
        np.testing.assert_allclose(out[:, head], want, rtol=2**-10, atol=1e-6)


def test_recorded_work_runs_when_it_is_called() -> None:
    calls: list[int] = []
    replay = CpuDevice().record([lambda: calls.append(1), lambda: calls.append(2)])
    assert calls == []
    replay()
    replay()
    assert calls == [1, 2, 1, 2]


def test_without_checks() -> None:
    text = 'extern "C" __global__ void race(int* y) { y[0] = threadIdx.x; }'
    launch = Launch(Kernel("race", "race"), (1, 1, 1), 32, (integers([0]),), frozenset({0}))
    CpuDevice(check=False, texts={"race": text}).launch(launch)
    with pytest.raises(LaunchError, match="race"):
        CpuDevice(check=True, texts={"race": text}).launch(launch)


ORDER = SmallKernels("launch_order")


def test_a_programmatic_launch_waits_before_it_touches_memory() -> None:
    x, y = integers(range(32)), integers([0] * 32)
    ORDER.run("waits_first", y, x, is_dependent=True)
    for entry in ("reads_first", "leaves_first"):
        ORDER.run(entry, y, x)  # launched in turn
    with pytest.raises(LaunchError) as raised:
        ORDER.run("reads_first", y, x, is_dependent=True)
    assert "4-byte access before earlier launches have ended, in argument 1" in str(raised.value)
    assert ORDER.line("const int early") in str(raised.value)
    with pytest.raises(LaunchError, match="ends without having waited for earlier launches"):
        ORDER.run("leaves_first", y, x, is_dependent=True)


def test_every_kernel_of_a_file_waits_or_none_does() -> None:
    """The file decides whether launches of its kernels may overlap with the previous one."""
    waiting = 0
    for path in sorted((kernels_folder() / "cuda").rglob("*.cu")):
        text = path.read_text(encoding="utf-8")
        calls = text.count("wait_for_last_launch();")
        assert calls in (0, len(re.findall(r"\bKERNEL\b", text))), path.name
        waiting += calls > 0
    assert waiting


KERNEL = Kernel("rms_norm", "rms_norm")


def choices(samples: CheckSamples, number: int, kernel: Kernel = KERNEL) -> list[bool]:
    return [samples.takes(kernel) for _ in range(number)]


def test_one_launch_in_so_many_is_checked() -> None:
    samples = CheckSamples()
    samples.begin("a test", 11)
    assert [sum(choices(samples, 11)) for _ in range(3)] == [1, 1, 1]


def test_the_tests_of_kernels_check_all() -> None:
    assert all(choices(SAMPLES, 3 * max(PERIOD, 2)))


def test_each_test_and_kernel_begins_elsewhere() -> None:
    samples = CheckSamples()
    firsts = set()
    for test in range(60):
        samples.begin(f"test {test}", 11)
        firsts.add(choices(samples, 11).index(True))
    assert firsts == set(range(11))
    samples.begin("a test", 11)
    others = [Kernel("rms_norm", f"rms_norm_{i}") for i in range(60)]
    assert {choices(samples, 11, other).index(True) for other in others} == set(range(11))


def test_a_test_always_has_the_same_launches_checked() -> None:
    samples = CheckSamples()
    samples.begin("a test", 11)
    found = choices(samples, 30)
    samples.begin("another", 11)
    choices(samples, 5)
    samples.begin("a test", 11)
    assert choices(samples, 30) == found


def test_a_driver_brings_the_twins(tmp_path: Path) -> None:
    driver = tmp_path / "nvidiactl"
    assert devices((driver,)) == ["cpu"]
    driver.touch()
    (cpu, twin) = devices((tmp_path / "another", driver))
    assert cpu == "cpu"
    assert twin.values == ("gpu",)
    assert [mark.name for mark in twin.marks] == ["gpu"]


@pytest.mark.gpu
def test_the_gpu_takes_part(gpu: Device) -> None:
    """Without a GPU this one is skipped, and counted, in place of all twins."""
    assert gpu.name
    assert gpu.free_bytes > 0
