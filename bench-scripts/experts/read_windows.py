"""Counts what the default policy reads in every window of 64 tokens, against SLRU, from token 1 on.

Routes are skewed, uniform and, with a trace (of `--moe-trace`, or an npz file with `experts`
(tokens, layers, k)), recorded. Reads are misses and prefetches. Where little is read, a few experts
are a large share: a window may read FLOOR experts of each layer more than 1.1 times what SLRU
reads, besides. The exit status is 1 if a window reads more than that.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from experts.emulation import make_routes

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings, default_load_budget

WINDOW, STRIDE = 64, 8  # tokens: of a window, and between two of them
MOST, FLOOR = 1.1, 2
_KINDS = (PolicyKind.SLRU, PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH)
Routes = NDArray[np.int32]


class Worst(NamedTuple):
    """The window that exceeds SLRU's reads most."""

    ratio: float  # of the reads, without the floor, to those of SLRU
    plain_ratio: float  # of all reads, in windows where SLRU reads FLOOR experts of each layer
    token: int  # the first of the window


def main() -> None:
    """Parses the command line, and prints a line for each kind of routes and share of slots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="recorded routes")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--slots", default="25,50,75", help="percent of the experts")
    options = parser.parse_args()
    print(f"{'routes':10}{'slots':>6}  reads/token: slru   keep  prefetch   worst  plain  at token")
    is_within = True
    for name, routes, num_experts in all_routes(options.trace, options.tokens):
        for percent in options.slots.split(","):
            slots = max(1, round(int(percent) / 100 * num_experts))
            sums = [reads(kind, slots, num_experts, routes) for kind in _KINDS]
            worst = worst_window(sums[-1], sums[0], routes.shape[1])
            is_within &= worst.ratio <= MOST
            means = "".join(f"{each[-1] / len(routes):>9.2f}" for each in sums)
            found = f"{worst.ratio:6.2f} {worst.plain_ratio:6.2f}  {worst.token}"
            print(f"{name:10}{percent:>4} %{'':11}{means}   {found}", flush=True)
    sys.exit(not is_within)


def all_routes(trace: Path | None, tokens: int) -> Iterator[tuple[str, Routes, int]]:
    """Yields names, routes (tokens, layers, k), and the number of experts of a layer."""
    for name in ("skewed", "uniform"):
        yield name, make_routes(name, tokens, 12, 32, 4), 32
    if trace is not None:
        yield "recorded", np.load(trace)["experts"][:tokens].astype(np.int32), 32


def reads(kind: PolicyKind, slots: int, num_experts: int, routes: Routes) -> NDArray[np.int64]:
    """Returns the sums of the experts read before token 0, STRIDE, 2 * STRIDE and so on."""
    _, layers, k = routes.shape
    budget = default_load_budget(layers, k)
    settings = PolicySettings(kind, num_experts, k, (slots,) * layers, load_budget=budget)
    policy, sums = NativePolicy(settings), [0]
    for token, of_layers in enumerate(np.ascontiguousarray(routes), start=1):
        for layer, route in enumerate(of_layers):
            policy.use(layer, route)
        policy.end_token()
        if token % STRIDE == 0:
            counts = policy.all_counts()
            sums.append(sum(each.accesses - each.hits + each.early_loads for each in counts))
    policy.close()
    return np.array(sums)


def worst_window(own: NDArray[np.int64], slru: NDArray[np.int64], layers: int) -> Worst:
    """Compares the sums of `reads`; the first window ends at token WINDOW."""
    length, floor = WINDOW // STRIDE, FLOOR * layers
    mine, others = own[length:] - own[:-length], slru[length:] - slru[:-length]
    ratios = (mine - floor) / np.maximum(1, others)
    plain = np.where(others >= floor, mine / np.maximum(1, others), 0.0)
    return Worst(float(ratios.max()), float(plain.max()), int(ratios.argmax()) * STRIDE)


if __name__ == "__main__":
    main()
