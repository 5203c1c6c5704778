"""Reports of runs larger than RAM: ratios by round, windows of tokens, shares of a limit."""

import pytest
from contest.contestant import Timing
from memory.cold_run import Run
from memory.larger_than_ram_report import (
    bound_share,
    disk_share,
    ratio_rows,
    read_rows,
    read_sentence,
    wait_share,
    window_rows,
    window_speeds,
)

# Of 4 seconds the disk needs 200 / 100 for the missed bytes, and 3 are computing.
COUNTS = {
    "accesses": 80,
    "hits": 60,
    "read_bytes": 240,
    "wasted_bytes": 40,
    "stall_seconds": 1.0,
    "storage_bytes": 400,
}


def decode(contestant: str, *pass_seconds: float, counts: dict[str, float] | None = None) -> Run:
    return Run(
        test="decode",
        contestant=contestant,
        num_tokens=len(pass_seconds),
        timing=Timing(sum(pass_seconds), list(pass_seconds), counts or {}),
        load_seconds=1.0,
        cached_share=0.0,
        description={},
        disk_rates=(90.0, 110.0),
    )


def test_windows_are_whole() -> None:
    assert window_speeds([1, 1, 2, 2, 5], size=2) == [1, 0.5]
    assert window_speeds([1, 1], size=20) == []


def test_ratios_are_of_rounds() -> None:
    runs = [decode("sharpi", 1), decode("rival", 2), decode("sharpi", 2), decode("rival", 2)]
    (row,) = ratio_rows([*runs, decode("sharpi", 1), decode("rival", 4)])
    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (2, 1, 4)
    assert row["tokens_per_second"] == {"sharpi": 1, "rival": 0.5}


def test_a_slow_window_shows_in_its_own_row() -> None:
    runs = [decode("sharpi", 1, 1, 3, 3), decode("rival", 2, 2, 2, 2)]
    first, second = window_rows(runs, size=2)
    assert (first["test"].strip(), first["ratio"]) == ("1 to 2", 2)
    assert (second["test"].strip(), second["ratio"]) == ("3 to 4", pytest.approx(2 / 3))


def test_one_alone_has_no_ratio() -> None:
    runs = [decode("sharpi", 1, 1, 1)]
    assert ratio_rows(runs) == window_rows(runs, size=2) == []
    assert read_rows(runs)[0]["tokens_per_second"] == 1


def test_shares_leave_out_what_was_read_in_vain() -> None:
    run = decode("sharpi", 1, 3, counts=COUNTS)
    assert disk_share(run) == pytest.approx(0.5)
    assert bound_share(run) == pytest.approx(0.75)
    assert wait_share(run) == pytest.approx(2)  # half of it was hidden
    assert bound_share(decode("sharpi", 1, 1, counts=COUNTS)) == pytest.approx(1)


def test_sentences_say_what_was_counted() -> None:
    counted = read_sentence(read_rows([decode("sharpi", 1, 3, counts=COUNTS)])[0])
    for part in ("0.50 tokens/s", "75.0 % of the experts found", "500.0 ms waited", "50 % of what"):
        assert part in counted
    assert read_sentence(read_rows([decode("rival", 1)])[0]) == (
        "decode, rival: 1.00 tokens/s, ready after 1.0 s"
    )
