"""Expected hit rates: the share of a token's experts that are resident, by the number of slots.

They were measured with the default policy on 8,000 tokens of GPT-OSS-20B, or follow from a model's
profile. Routes of other models may repeat less or more, so there are also a lowest and a highest
rate.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

# Pairs of the share of a layer's experts that have slots, and the hit rate.
CURVE = (
    (0.0, 0.0),
    (0.031, 0.174),
    (0.062, 0.313),
    (0.094, 0.426),
    (0.125, 0.515),
    (0.188, 0.640),
    (0.250, 0.728),
    (0.375, 0.847),
    (0.500, 0.917),
    (0.625, 0.958),
    (0.750, 0.981),
    (0.875, 0.994),
    (1.0, 1.0),
)
_REPEATS = 4  # the ratio of misses: random routes with the same skew to the recorded routes


class HitRates(Struct, frozen=True):
    """Three hit rates, 0 to 1: if all experts are used alike, expected, if few are used."""

    low: float
    likely: float
    high: float


def hit_rates(num_slots: int, num_experts: int, shares: Sequence[float] = ()) -> HitRates:
    """Returns the hit rates of a layer with `num_slots` slots.

    `shares`: the share of the layer's uses that its most used expert has, that its two most used
    experts have, and so on; empty without a profile.
    """
    share = num_slots / num_experts
    if num_slots >= num_experts or not num_slots:
        return HitRates(share, share, share)
    likely = max(share, shares[num_slots - 1]) if shares else curve(share)
    best = 1 - (1 - max(likely, curve(share))) / _REPEATS
    return HitRates((share + likely) / 2 if shares else share, likely, best)


def curve(share: float) -> float:
    """Returns the hit rate on the recorded routes if a `share` of the experts has slots.

    It interpolates between measured points.
    """
    at = max(1, bisect_left(CURVE, (share, 0.0)))
    (left, low), (right, high) = CURVE[at - 1], CURVE[min(at, len(CURVE) - 1)]
    return low + (high - low) * (share - left) / (right - left) if right > left else high


def cumulative_shares(uses: Sequence[int]) -> tuple[float, ...]:
    """Returns the argument `shares` of `hit_rates`, from the uses of each expert of a layer.

    Empty if all uses are 0.
    """
    total = sum(uses)
    return tuple(count / total for count in accumulate(sorted(uses, reverse=True))) if total else ()
