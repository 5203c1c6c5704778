"""Rates are measured once a week, or until nothing else disturbs the measurement."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sharpi.hardware.kept_rates import kept_rate


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., float]:
    """Returns what is kept on a machine at some time, where a measurement gives `rate`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))

    def ask(rate: float, *, day: float = 0, load: float = 0.0, name: str = "disk") -> float:
        monkeypatch.setattr(time, "time", lambda: 1e9 + day * 86_400)
        monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
        return kept_rate(name, lambda: rate)

    return ask


def test_a_calm_measurement_is_kept_for_a_week(machine: Callable[..., float]) -> None:
    assert machine(2.0) == 2.0
    assert machine(3.0, day=6.9) == 2.0
    assert machine(5.0, day=6.9, name="RAM") == 5.0
    assert machine(3.0, day=7.1) == 3.0
    assert machine(1.0, day=0) == 1.0  # the clock was set back


def test_a_disturbed_one_counts_until_a_calm_one(machine: Callable[..., float]) -> None:
    assert machine(2.0, load=99.0) == 2.0
    assert machine(1.0, load=99.0, day=1) == 2.0
    assert machine(1.5, day=2) == 1.5
    assert machine(4.0, day=3) == 1.5


def test_what_cannot_be_kept_is_measured(machine: Callable[..., float], tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"a file where the folder should be")
    assert [machine(2.0), machine(3.0)] == [2.0, 3.0]
    (tmp_path / "new").unlink()
    assert machine(2.0) == 2.0
    next((tmp_path / "new").rglob("*.json")).write_bytes(b'{"disk": 3}')
    assert machine(4.0) == 4.0
