"""Frames for pages of windows: whatever a scheduler does, there are enough, and none is lost.

The CPU computes. Beside it the frames that a GPU would have are given out and taken back.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scheduled import Heard, asked, assert_nothing_is_left, finish, submit

from sharpi.engine import settings
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import HostBytes, StepOfPart, Values
from sharpi.engine.engine import Engine
from sharpi.engine.kv.window_pages import WindowPages, windows_of
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import DeviceError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, first_page_read
from sharpi.ops.cuda.kv_cache import SPARE_FRAMES, WindowFrames

pytestmark = pytest.mark.native
WINDOW = 200  # positions
REFERENCES = Path(__file__).parents[2] / "references" / "data"
CANCELLED = 3  # the index of a request
NAMES = ("copy_page", "drop_windows", "read_page", "write_page")
Load = Callable[..., Engine]


class Shadow:
    """Keeps frames beside a part on the CPU, as a GPU's part does."""

    def __init__(self, engine: Engine, patch: pytest.MonkeyPatch) -> None:
        own, (part,) = engine.runner.settings, engine.runner.parts
        assert isinstance(part, CpuPart)
        self.frames = WindowFrames(
            (0,), own.window, own.window_pages + SPARE_FRAMES, own.batch_size
        )
        self._table = np.zeros(own.pages_per_sequence, np.int32)
        self._part, self._runner = part, engine.runner
        self._calls = {name: getattr(part.cache, name) for name in NAMES}
        self._run, self._run_parts = part.run, engine.runner._run_parts
        for name in self._calls:
            patch.setattr(part.cache, name, getattr(self, name))
        patch.setattr(part, "run", self.run)
        patch.setattr(engine.runner, "_run_parts", self.begin)

    def begin(self, step: StepOfPart, max_outputs: int) -> object:
        for each in step.segments:
            self.frames.begin(each.position, each.position + len(each.ids), each.pages)
        return self._run_parts(step, max_outputs)

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        for each in step.segments:
            known = range(
                first_page_read(each.position, WINDOW), -(-each.position // PAGE_POSITIONS)
            )
            assert all(self.frames.find(int(each.pages[index])) is not None for index in known)
            end = each.position + len(each.ids)
            self.frames.write(self._table, each.position, end, each.pages)
            own = self._table[known.start : -(-end // PAGE_POSITIONS)].tolist()
            assert len(set(own)) == len(own)
        return self._run(step, max_outputs)

    def copy_page(self, source: int, target: int) -> None:
        if self.frames.find(source) is not None:
            self.frames.take(target)
        self._calls["copy_page"](source, target)

    def drop_windows(self, page: int, **free: bool) -> None:
        self.frames.drop(page)
        self._calls["drop_windows"](page, **free)

    def read_page(self, page: int, target: HostBytes, *, is_partial: bool = False) -> None:
        assert is_partial or self.frames.find(page) is not None
        self._calls["read_page"](page, target, is_partial=is_partial)

    def write_page(self, page: int, source: HostBytes, *, is_partial: bool = False) -> None:
        if not is_partial:
            self.frames.take(page)
        self._calls["write_page"](page, source, is_partial=is_partial)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Returns a model whose windows have several pages."""
    key, number = b"gpt-oss.attention.sliding_window", struct.Struct("<II")  # a type, a value
    data = (REFERENCES / "gpt-oss.gguf").read_bytes()
    before = key + number.pack(4, 8)
    assert data.count(before) == 1
    path = tmp_path / "wide.gguf"
    path.write_bytes(data.replace(before, key + number.pack(4, WINDOW)))
    return path


def texts(random: Random) -> list[list[int]]:
    """Returns prompts, many of which begin as others do."""
    start = [random.randrange(3, 280) for _ in range(700)]
    found = [
        [*start[: random.randrange(1, 700)], *(random.randrange(3, 280) for _ in range(40))]
        for _ in range(6)
    ]
    other = [random.randrange(3, 280) for _ in range(900)]
    return [*found, other, other, *found[:2], other[:400]]


def answers(engine: Engine, prompts: list[list[int]], parallel: int) -> list[list[int]]:
    scheduler = Scheduler(engine, parallel)
    heard: list[Heard] = []
    for index, prompt in enumerate(prompts):
        heard.append(submit(scheduler, prompt, asked(5 + 30 * (index % 3))))
        for _ in range(3 * (index % 4)):
            scheduler.step()
        if index == CANCELLED + 1:
            request_id = heard[CANCELLED].request_id
            assert request_id is not None
            scheduler.cancel(request_id)
    finish(scheduler)
    assert_nothing_is_left(scheduler, engine)
    assert all(each.finish_info.reason in ("length", "cancelled") for each in heard)
    return [each.ids for each in heard]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parallel", "batch", "step"),
    [(1, 64, 64), (3, 64, 400), (2, 256, 1000)],
)
def test_frames_are_enough_and_bits_are_the_same(
    parallel: int,
    batch: int,
    step: int,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    wide: Path,
) -> None:
    """Also where a step has many batches, and where a prompt cache brings pages back."""
    monkeypatch.setattr(Runner, "prompt_batch", property(lambda _: step))
    options = {"context_size": 16 * batch, "batch_size": batch, "num_parallel": parallel}
    engine = load(wide, **options, prompt_cache=wide.parent / "cache")
    shadow = Shadow(engine, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(settings, "window_pages", lambda *_: 0)
        whole = load(wide, **options)
    prompts = texts(Random(1))
    found, expected = (answers(each, prompts, parallel) for each in (engine, whole))
    for index, (own, other) in enumerate(zip(found, expected, strict=True)):
        least = min(len(own), len(other)) if index == CANCELLED else None
        assert own[:least] == other[:least]
    assert not shadow.frames._frames
    assert len(shadow.frames._free) == shadow.frames.num_frames
    (part,) = engine.runner.parts
    assert isinstance(part, CpuPart)
    for layer in windows_of(engine.model_config):
        assert not part.cache.layers[layer].any()  # nor does the CPU's memory keep anything


def test_one_line_where_all_frames_are_in_use() -> None:
    frames = WindowFrames((0,), 8, 2, 64)
    assert [frames.take(page) for page in (5, 6, 5)] == [0, 1, 0]
    with pytest.raises(DeviceError, match="all pages of sliding-window layers are in use"):
        frames.take(7)
    frames.drop(6)
    frames.drop(6)
    assert (frames.take(7), frames.find(6)) == (1, None)


def test_batches_of_a_long_step_use_frames_again() -> None:
    frames = WindowFrames((0,), 64, 4, 64)
    pages, table = np.arange(10, 20, dtype=np.int32), np.zeros(10, np.int32)
    frames.begin(0, 600, pages)
    for position in range(0, 600, 64):
        end = min(600, position + 64)
        frames.write(table, position, end, pages)
        assert len(frames._frames) <= 3
    assert sorted(frames._frames) == [18, 19]


def test_a_long_step_makes_room_for_what_a_batch_reads() -> None:
    dropped: list[int] = []
    windows = WindowPages(64, 6, lambda page, *_: dropped.append(page), 64)
    windows.hold(*range(6))
    for page in range(6):
        windows.release(page)
    assert windows.passing(0, 64) == range(0)
    assert dropped == []
    assert windows.passing(10, 600) == range(1, 8)
    assert dropped == [0, 1]
    windows.drop_passed(9)
    windows.drop_passed(5)  # which is held in the meantime
    assert dropped == [0, 1, 9]


def test_no_page_goes_before_all_are_held() -> None:
    """A text that was left long ago goes on while there are as many pages as there may be."""
    dropped: list[int] = []
    windows = WindowPages(128, 3, lambda page, *_: dropped.append(page))
    windows.hold(1, 2, 3)
    for page in (1, 2, 3):
        windows.release(page)
    windows.begin(4)  # a copy
    windows.hold(1, 2)
    assert dropped == [3]
