"""TokenRate: the tokens of the last seconds, in few entries whatever the speed."""

from types import SimpleNamespace

import pytest

from sharpi.serve.host import metrics
from sharpi.serve.host.metrics import WINDOW_SECONDS, TokenRate


def test_the_rate_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    # Not the clock of the whole process, by which servers of other tests wait.
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now))
    rate = TokenRate()
    assert rate.per_second() == 0.0
    for _ in range(40_000):
        now += 0.001
        rate.add(3)
    assert rate.per_second() == pytest.approx(3000, rel=0.02)
    assert len(rate._times) <= WINDOW_SECONDS * 10 + 2
    now += WINDOW_SECONDS + 1
    assert rate.per_second() == 0.0
