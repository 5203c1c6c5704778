"""The threads of the pool on simulated processors: shares by speed, and every task runs once."""

import subprocess
from itertools import chain
from pathlib import Path

import pytest
from build_cache import build_folder, built, digest

KERNELS = Path(__file__).parents[3] / "kernels/cpu"
SOURCES = [
    Path(__file__).with_name("threads_driver.cpp"),
    *(KERNELS / f"threads/{name}.cpp" for name in ("pool", "shares", "barrier", "waiting")),
    KERNELS / "threads/scheduling.cpp",
]


@pytest.fixture(scope="module")
def driver() -> Path:
    headers = chain(KERNELS.glob("threads/*.h"), KERNELS.glob("runtime/*.h"))
    key = digest(*(path.read_text() for path in [*SOURCES, *sorted(headers)]))
    return built(build_folder() / f"threads-{key}", _compile)


def _compile(target: Path) -> None:
    command = ["g++", "-std=c++20", "-O2", "-pthread", f"-I{KERNELS}", "-o", str(target)]
    subprocess.run([*command, *map(str, SOURCES)], check=True)


def _run(driver: Path, *words: object) -> list[list[float]]:
    output = subprocess.run(
        [driver, *map(str, words)], check=True, capture_output=True, text=True, timeout=120
    )
    return [[float(word) for word in line.split()] for line in output.stdout.splitlines()]


def _shares(
    driver: Path, speeds: list[float], nodes: list[int], tasks: int = 400, stages: int = 400
) -> list[list[float]]:
    return _run(
        driver, "shares", ",".join(map(str, speeds)), ",".join(map(str, nodes)), tasks, stages
    )


def test_shares_follow_the_speed_of_threads(driver: Path) -> None:
    speeds = [1.0] * 8 + [0.5] * 8  # performance and efficiency cores
    first, last, fractions = _shares(driver, speeds, [0] * 16)
    assert first[1] > 40, "equal shares have to be evened out by taking from others"
    assert last[1] <= first[1] / 4
    assert last[0] <= 1.05
    assert fractions == pytest.approx([s / sum(speeds) for s in speeds], rel=0.12)


def test_equal_threads_keep_equal_shares(driver: Path) -> None:
    first, last, fractions = _shares(driver, [1.0] * 6, [0] * 6, tasks=48)
    assert first == last == [1.0, 0.0]
    assert fractions == pytest.approx([1 / 6] * 6, abs=1e-5)


def test_a_slow_thread_never_loses_all_work(driver: Path) -> None:
    *_, fractions = _shares(driver, [1.0, 1.0, 1.0, 0.001], [0] * 4, stages=4000)
    assert 0.005 < fractions[3] < 0.06
    assert sum(fractions) == pytest.approx(1)


def test_nodes_keep_their_part(driver: Path) -> None:
    *_, fractions = _shares(driver, [1.0, 0.5, 0.5, 0.5], [0, 0, 1, 1])
    assert sum(fractions[:2]) == pytest.approx(0.5)
    assert fractions[0] > 1.5 * fractions[1]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3, 9, 64])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_every_task_runs_once_in_the_order_of_stages(
    driver: Path, threads: int, group: int
) -> None:
    runs, least, most, early = _run(driver, "pool", threads, group, 60 if threads < 10 else 4)[0]
    assert least == most == runs
    assert early == 0
