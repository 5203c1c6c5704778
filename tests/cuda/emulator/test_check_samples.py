"""Where models run, one launch in so many is checked, in each test others."""

from check_samples import PERIOD, SAMPLES, CheckSamples

from sharpi.device.launch import Kernel

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
