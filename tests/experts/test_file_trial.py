"""When the mapped file is tried in place of slots, and what the times decide."""

import numpy as np
import pytest

from sharpi.experts.file_trial import (
    FIRST_WINDOW,
    WINDOW,
    ExpertSource,
    FileTrial,
    WindowCounts,
    uses_outside,
)

SIZES = np.array([10, 10], np.int64)
USES = np.array([[90, 5, 5, 0], [100, 0, 0, 0]], np.int64)  # four experts that are used
STALLING = WindowCounts(
    stall_seconds=0.2 * FIRST_WINDOW, misses=40, loads=40, uses=USES, all_uses=USES, first_uses=0
)
ALL_BYTES = 50  # a fifth of it is for what read-ahead brings


class Scripted:
    """Counters that give every window the same counts."""

    def __init__(self, counts: WindowCounts, free_bytes: int) -> None:
        self.counts, self.free_bytes, self.num_begun = counts, free_bytes, 0

    def begin_window(self) -> None:
        self.num_begun += 1

    def window(self) -> tuple[WindowCounts, int]:
        return self.counts, self.free_bytes


def in_slots(trial: FileTrial, tokens: int = FIRST_WINDOW, seconds: float = 1.0) -> None:
    """Runs a window with slots, if the file is not tried earlier."""
    for _ in range(tokens):
        assert trial.choice is ExpertSource.SLOTS
        assert not trial.record(seconds)


def begun(free_bytes: int = ALL_BYTES, counts: WindowCounts = STALLING) -> FileTrial:
    trial = FileTrial(SIZES, Scripted(counts, free_bytes))
    in_slots(trial)
    assert trial.is_settled == (trial.choice is ExpertSource.SLOTS)
    return trial


def in_file(trial: FileTrial, tokens: int, seconds: float, faults: int = 0) -> int | None:
    """Runs tokens with the file; returns the number of the token that decided."""
    for token in range(tokens):
        if trial.record(seconds, faults=faults):
            return token
    return None


@pytest.mark.parametrize(
    ("free_bytes", "outside"), [(40, 0), (30, 5), (20, 10), (10, 100), (0, 200)]
)
def test_uses_outside_the_most_used_experts_that_fit(free_bytes: int, outside: int) -> None:
    assert uses_outside(USES, SIZES, free_bytes) == outside


def test_larger_experts_take_more_room() -> None:
    assert uses_outside(USES, np.array([10, 30], np.int64), 39) == 100
    assert uses_outside(USES, np.array([10, 30], np.int64), 40) == 10


def changed(**fields: object) -> WindowCounts:
    known: dict[str, object] = {
        "stall_seconds": STALLING.stall_seconds, "misses": 40, "uses": USES, "all_uses": USES,
        "first_uses": 0,
    } | fields  # fmt: skip
    return WindowCounts(**({"loads": known["misses"]} | known))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "free_bytes"),
    [
        (changed(stall_seconds=0.01 * FIRST_WINDOW), ALL_BYTES),  # hardly any time to gain
        (changed(first_uses=40), ALL_BYTES),  # both sources have to read what was never used
        (changed(first_uses=37), ALL_BYTES),
        (STALLING, 10),  # the file would miss more
        (changed(misses=8), 30),
        (changed(misses=8), 49),
        (changed(misses=0, stall_seconds=0.0), ALL_BYTES),
    ],
)
def test_slots_stay_where_the_file_promises_nothing(counts: WindowCounts, free_bytes: int) -> None:
    assert begun(free_bytes, counts).choice is ExpertSource.SLOTS


def test_a_faster_file_is_kept_after_two_fast_blocks() -> None:
    trial = begun()
    assert not trial.is_settled
    assert in_file(trial, 9, seconds=3.0) is None  # while the page cache fills
    token = in_file(trial, 100, seconds=0.9)
    assert token is not None
    assert (trial.choice, trial.is_settled) == (ExpertSource.FILE, True)
    assert trial.file_ratio == pytest.approx(0.9)


def test_a_trial_costs_no_more_than_its_stake_and_slots_rest_longer_each_time() -> None:
    trial = begun()
    pauses = []
    for _ in range(2):
        decided = in_file(trial, 1000, seconds=1.1)
        assert decided == 199  # 20 tokens' time beyond that with slots
        pause = 0
        while trial.choice is ExpertSource.SLOTS:
            assert not trial.record(1.0)
            pause += 1
        pauses.append(pause)
    assert pauses[0] > 8000
    assert pauses[1] > 1.9 * pauses[0]


@pytest.mark.parametrize(
    ("seconds", "source"), [(0.99, ExpertSource.FILE), (1.0, ExpertSource.SLOTS)]
)
def test_a_file_as_fast_as_slots_is_kept_at_the_end_of_its_trial(
    seconds: float, source: ExpertSource
) -> None:
    trial = begun()
    assert in_file(trial, 1000, seconds) == 511
    assert (trial.choice, trial.is_settled) == (source, True)


@pytest.mark.parametrize(("stall", "is_tried"), [(0.021, True), (0.0199, False)])
def test_a_trial_has_to_promise_more_than_it_may_cost(stall: float, *, is_tried: bool) -> None:
    # 20 tokens' time at least, out of 2,000
    counts = changed(stall_seconds=stall * FIRST_WINDOW, misses=4000)
    assert (begun(counts=counts).choice is ExpertSource.FILE) == is_tried


def test_filling_a_large_page_cache_has_to_be_gained_again() -> None:
    slow = changed(stall_seconds=0.2 * FIRST_WINDOW, misses=40, loads=2)
    many = np.repeat(USES, 8, axis=1)
    dear = changed(stall_seconds=0.2 * FIRST_WINDOW, loads=1, uses=many, all_uses=many)
    assert begun(counts=slow).choice is ExpertSource.FILE  # 4 experts of 12.8 s for 320 s
    assert begun(8 * ALL_BYTES, dear).choice is ExpertSource.SLOTS  # 32 experts of 25.6 s


def test_experts_that_a_short_window_shows_seldom_are_ranked_by_all_their_uses() -> None:
    window, ever = np.array([[1, 2, 0, 3]]), np.array([[90, 2, 80, 70]])
    assert uses_outside(window, np.array([1]), 3) == 0
    assert uses_outside(window, np.array([1]), 3, ever) == 2


def kept() -> FileTrial:
    trial = begun()
    in_file(trial, 100, seconds=0.9)
    assert trial.is_settled
    return trial


def test_slots_return_after_two_slow_windows_with_page_faults() -> None:
    trial = kept()
    assert in_file(trial, 4 * WINDOW, seconds=1.1, faults=3) == 2 * WINDOW - 1
    assert trial.choice is ExpertSource.SLOTS


@pytest.mark.parametrize(("seconds", "faults"), [(1.5, 0), (1.01, 3)])
def test_neither_slow_computing_nor_a_few_faults_bring_slots_back(
    seconds: float, faults: int
) -> None:
    trial = kept()
    assert in_file(trial, 4 * WINDOW, seconds, faults) is None
    assert trial.choice is ExpertSource.FILE


def test_a_slow_window_between_fast_ones_changes_nothing() -> None:
    trial = kept()
    for seconds in (1.1, 0.9, 1.1, 0.9):
        assert in_file(trial, WINDOW, seconds, faults=3) is None


def test_one_delayed_token_decides_nothing() -> None:
    trial = begun()
    in_file(trial, 63, seconds=0.85)
    assert trial.record(60.0)  # the last token of the second block
    assert trial.choice is ExpertSource.FILE


def test_steps_beside_count_as_time_and_not_as_tokens() -> None:
    trial = FileTrial(SIZES, Scripted(STALLING, ALL_BYTES))
    trial.add_shared_step(99 * FIRST_WINDOW)
    in_slots(trial)
    assert trial.choice is ExpertSource.SLOTS  # 0.2 of 100 seconds are too few
    in_slots(trial)
    assert trial.choice is ExpertSource.FILE


@pytest.mark.parametrize(("tried", "ratio"), [(0.5, 2.0), (3.0, 1.0)])
def test_the_file_has_to_beat_what_the_policy_tries_beside(tried: float, ratio: float) -> None:
    trial = FileTrial(SIZES, Scripted(STALLING, ALL_BYTES))
    for i in range(FIRST_WINDOW):
        trial.record(1.0 if i % 4 else tried, is_usual=i % 4 > 0)
    assert trial.choice is ExpertSource.FILE
    in_file(trial, 512, seconds=1.0)
    assert trial.file_ratio == pytest.approx(ratio)


def test_windows_grow_after_the_first_tokens() -> None:
    counters = Scripted(changed(misses=0), ALL_BYTES)
    trial, begins = FileTrial(SIZES, counters), []
    for token in range(2000):
        trial.record(1.0)
        if counters.num_begun > len(begins):
            begins.append(token)
    assert begins[:3] == [0, 64, 128]
    assert begins[-3:] == [1280, 1536, 1792]
