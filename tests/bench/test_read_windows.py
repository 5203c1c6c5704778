"""The windows of reads: how they are compared, and a small run of the script."""

import sys

import numpy as np
import pytest
from experts import read_windows

pytestmark = pytest.mark.native


def test_the_worst_window_is_found_and_a_few_reads_do_not_count() -> None:
    slru, is_late = np.arange(33) * 80, np.arange(33) >= 20
    worst = read_windows.worst_window(slru + 200 * is_late, slru, 4)
    assert worst.ratio == pytest.approx((640 + 200 - 8) / 640)
    assert worst.plain_ratio == pytest.approx(840 / 640)
    assert worst.token == 96  # the first window that ends after it
    assert read_windows.worst_window(slru + 5 * is_late, slru, 4).ratio < 1.0


def test_the_default_is_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["read_windows.py", "--tokens", "320", "--slots", "50,75"])
    with pytest.raises(SystemExit) as ended:
        read_windows.main()
    assert ended.value.code == 0
