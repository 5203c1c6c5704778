"""Expected hit rates: those of the recorded routes, or of a profile."""

import pytest

from sharpi.tiers.hit_rates import CURVE, cumulative_shares, curve, hit_rates


def test_the_curve_is_that_of_the_recorded_routes() -> None:
    assert [curve(share) for share, _ in CURVE] == [rate for _, rate in CURVE]
    assert curve(0.28125) == pytest.approx(0.728 + (0.847 - 0.728) / 4)


def test_rates_are_in_order_and_grow() -> None:
    found = [hit_rates(slots, 64) for slots in range(65)]
    assert all(each.low <= each.likely <= each.high <= 1 for each in found)
    for name in ("low", "likely", "high"):
        rates = [getattr(each, name) for each in found]
        assert rates == sorted(rates)
        assert (rates[0], rates[-1]) == (0, 1)


def test_a_profile_replaces_the_curve() -> None:
    shares = cumulative_shares([10, 60, 0, 30])
    assert shares == (0.6, 0.9, 1.0, 1.0)
    assert hit_rates(2, 4, shares).likely == 0.9
    assert hit_rates(2, 4, shares).low == pytest.approx(0.7)
    assert cumulative_shares([0, 0]) == ()
