"""When the mapped file is tried in place of slots, and what the times decide."""

import numpy as np
import pytest

from sharpi.experts.file_trial import WINDOW, FileTrial, Way, WindowCounts, uses_outside

SIZES = np.array([10, 10], np.int64)
USES = np.array([[90, 5, 5, 0], [100, 0, 0, 0]], np.int64)  # four experts that are used
STALLING = WindowCounts(stall_seconds=0.2 * WINDOW, misses=40, uses=USES, first_uses=0)
ALL_ROOM = 50  # a fifth of it is for what read-ahead brings


def in_window(trial: FileTrial, seconds: float = 1.0) -> None:
    """Runs a window with slots up to its last token."""
    ends = [trial.record(seconds) for _ in range(WINDOW)]
    assert ends == [False] * (WINDOW - 1) + [True]


def begun(room: int = ALL_ROOM, counts: WindowCounts = STALLING) -> FileTrial:
    trial = FileTrial(SIZES)
    in_window(trial)
    assert trial.judge_slots(counts, room) == (trial.way is Way.FILE)
    return trial


def in_file(trial: FileTrial, tokens: int, seconds: float, faults: int = 0) -> int | None:
    """Runs tokens with the file; returns the number of the token that decided."""
    for token in range(tokens):
        if trial.record_file(seconds, faults):
            return token
    return None


@pytest.mark.parametrize(("room", "outside"), [(40, 0), (30, 5), (20, 10), (10, 100), (0, 200)])
def test_uses_outside_the_most_used_experts_that_fit(room: int, outside: int) -> None:
    assert uses_outside(USES, SIZES, room) == outside


def test_larger_experts_take_more_room() -> None:
    assert uses_outside(USES, np.array([10, 30], np.int64), 39) == 100
    assert uses_outside(USES, np.array([10, 30], np.int64), 40) == 10


def changed(**fields: object) -> WindowCounts:
    known: dict[str, object] = {
        "stall_seconds": STALLING.stall_seconds, "misses": 40, "uses": USES, "first_uses": 0,
    }  # fmt: skip
    return WindowCounts(**(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "room"),
    [
        (changed(stall_seconds=0.01 * WINDOW), ALL_ROOM),  # hardly any time to gain
        (changed(first_uses=40), ALL_ROOM),  # any way has to read what was never used
        (changed(first_uses=37), ALL_ROOM),
        (STALLING, 10),  # the file would miss more
        (changed(misses=8), 30),
        (changed(misses=8), 49),
        (changed(misses=0, stall_seconds=0.0), ALL_ROOM),
    ],
)
def test_slots_stay_where_the_file_promises_nothing(counts: WindowCounts, room: int) -> None:
    assert begun(room, counts).way is Way.SLOTS


def test_a_faster_file_is_kept_after_two_fast_blocks() -> None:
    trial = begun()
    assert not trial.is_decided
    assert in_file(trial, 40, seconds=3.0) is None  # while the page cache fills
    token = in_file(trial, 100, seconds=0.9)
    assert token is not None
    assert (trial.way, trial.is_decided) == (Way.FILE, True)
    assert trial.ratio == pytest.approx(0.9)


def test_a_file_that_is_no_faster_ends_in_time_and_slots_rest_longer_each_time() -> None:
    trial = FileTrial(SIZES)
    rests = []
    for _ in range(2):
        in_window(trial)
        assert trial.judge_slots(STALLING, ALL_ROOM)
        spent = in_file(trial, 1000, seconds=0.99)
        assert spent is not None
        assert 0.99 * spent < 600  # so many tokens' time at most
        assert trial.way is Way.SLOTS
        rest = 0
        while not trial.record(1.0):
            rest += 1
        assert not trial.judge_slots(changed(misses=0), ALL_ROOM)
        rests.append(rest)
    assert rests[0] > 8000
    assert rests[1] > 1.9 * rests[0]


def kept() -> FileTrial:
    trial = begun()
    in_file(trial, 100, seconds=0.9)
    assert trial.is_decided
    return trial


def test_slots_return_after_two_slow_windows_with_page_faults() -> None:
    trial = kept()
    assert in_file(trial, 4 * WINDOW, seconds=1.1, faults=3) == 2 * WINDOW - 1
    assert trial.way is Way.SLOTS


@pytest.mark.parametrize(("seconds", "faults"), [(1.5, 0), (1.01, 3)])
def test_neither_slow_computing_nor_a_few_faults_bring_slots_back(
    seconds: float, faults: int
) -> None:
    trial = kept()
    assert in_file(trial, 4 * WINDOW, seconds, faults) is None
    assert trial.way is Way.FILE


def test_a_slow_window_between_fast_ones_changes_nothing() -> None:
    trial = kept()
    for seconds in (1.1, 0.9, 1.1, 0.9):
        assert in_file(trial, WINDOW, seconds, faults=3) is None


def test_one_delayed_token_decides_nothing() -> None:
    trial = begun()
    in_file(trial, 63, seconds=0.85)
    assert trial.record_file(60.0, 0) is True  # the last token of the second block
    assert trial.way is Way.FILE


def test_steps_beside_and_trials_of_the_policy_are_no_part_of_the_mean() -> None:
    trial = FileTrial(SIZES)
    for _ in range(100):
        trial.record(9.0)
    trial.restart()
    assert trial.begins_window
    trial.add_beside(99 * WINDOW)
    in_window(trial)
    assert not trial.judge_slots(STALLING, ALL_ROOM)  # 0.2 of 100 seconds are too few
    in_window(trial)
    assert trial.judge_slots(STALLING, ALL_ROOM)
