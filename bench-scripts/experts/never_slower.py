"""Checks that the default expert cache is at most 2 % slower than any alternative.

The alternatives are no slots (one per layer), a fixed set of the first experts, LRU and, with a
disk, the mapped file with the page cache. Residency is 5 to 100 % of the experts; routes are
uniform, skewed and uneven. Two pairs of tiers are emulated from costs (see emulated_tokens.py and
emulated_file.py): RAM with a disk, and VRAM with RAM. If models are named (files of
synthetic_moe.py with and without --skew), RAM with a disk is measured as well: each alternative
runs in a new process under the same memory limit, from a cold page cache, and the alternatives
alternate in rounds. The first 500 tokens of an emulation, or 1,100 of a measurement, are not
counted, since the default tries its options in them. The exit status is 1 if the default is
slower.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest.contestant import Settings, Task, token_ids
from experts.emulation import (
    KINDS,
    Costs,
    EmulatedChoice,
    EmulatedPages,
    EmulatedTokens,
    make_routes,
)
from memory.cold_run import Entry, Test, run_cold
from memory.memory_group import MemoryGroup
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.errors import SharpiError
from sharpi.experts.policy_settings import PolicyKind, PolicySettings, default_load_budget
from sharpi.gguf.header import is_expert_matrix
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware.info import probe_hardware

LAYERS, EXPERTS, K = 12, 32, 4
SETTLED = 500  # tokens, after which both trials have decided
SETTLED_ON_DISK = 1100  # tokens, after which the mapped file was tried, too
_MACHINES = {
    "RAM + fast disk": (Costs(0.6e-3, 0.15e-3, 20e-6, 30e-6), PolicyKind.LEARNED_PREFETCH),
    "RAM + slow disk": (Costs(0.6e-3, 1.5e-3, 20e-6, 30e-6), PolicyKind.LEARNED_PREFETCH),
    "VRAM + RAM": (Costs(0.08e-3, 0.05e-3), PolicyKind.SLRU),
}
_BESIDE = 96 << 20  # of a process that the planner does not count: interpreter and libraries
_WAYS = {"static": PolicyKind.STATIC, "lru": PolicyKind.LRU}


def main() -> None:
    """Parses the command line, measures, prints and exits with the result."""
    options = parse_options()
    shares = [float(part) / 100 for part in options.residency.split(",")]
    try:
        measured = dict(emulate(shares, options.tokens)) if options.tokens else {}
        for model in options.models:
            measured |= dict(measure(model, shares, options))
    except SharpiError as error:
        print(f"never_slower.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(table(measured))
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=2) + "\n")
    sys.exit(not all(judge(where, ways).passes for where, ways in measured.items()))


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL")
    parser.add_argument("--residency", default="5,10,25,50,75,100", help="percent of the experts")
    parser.add_argument("--tokens", type=int, default=1000, help="of the emulated tiers; 0: none")
    parser.add_argument("--ways", help="measure these alone, as in default,lru,mapped")
    parser.add_argument("-n", "--n-gen", type=int, default=1500, help="tokens of each measured run")
    parser.add_argument("-t", "--threads", type=int, default=probe_hardware().physical_cores)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args()


def emulate(shares: list[float], tokens: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields the name of each emulated case, with the seconds per token of each alternative."""
    times = {kind: _Times(kind, tokens) for kind in KINDS}
    for (machine, (costs, default)), kind in product(_MACHINES.items(), KINDS):
        for share in shares:
            slots = max(1, round(share * EXPERTS))
            ways = {DEFAULT: (default, slots), "no slots": (PolicyKind.LRU, 1)}
            ways |= {name: (policy, slots) for name, policy in _WAYS.items()}
            if default is PolicyKind.LEARNED_PREFETCH:
                ways["mapped"] = None, slots
            yield (
                f"{machine}, {kind}, {100 * share:g} %",
                {name: times[kind].seconds(*way, costs) for name, way in ways.items()},
            )


class _Times:
    """The seconds per token of each alternative on routes of one kind.

    What is read only after a miss is the same on all machines, and is replayed once.
    """

    def __init__(self, kind: str, tokens: int) -> None:
        self._routes = make_routes(kind, tokens + SETTLED, LAYERS, EXPERTS, K)
        self._reads = cache(partial(reads_per_token, routes=self._routes))

    def seconds(self, policy: PolicyKind | None, slots: int, costs: Costs) -> float:
        """Returns what `seconds_per_token` does."""
        chosen = None if policy is None else emulated_kind(policy, slots)
        if chosen is not None and chosen.is_learned:
            return seconds_per_token(chosen, slots, self._routes, costs)
        return LAYERS * costs.layer + costs.read * self._reads(chosen, slots)


def seconds_per_token(
    policy: PolicyKind | None, slots: int, routes: NDArray[np.int32], costs: Costs
) -> float:
    """Returns the mean emulated seconds per token, without the first SETTLED tokens.

    If `policy` is None, experts are read from the mapped file.
    """
    settings = emulated_settings(policy or PolicyKind.LRU, slots)
    if policy is None:
        pages = EmulatedPages(settings, costs)
        return statistics.fmean([pages.token(token)[0] for token in routes.tolist()][SETTLED:])
    is_default = settings.kind is PolicyKind.LEARNED_PREFETCH
    run = (EmulatedChoice if is_default else EmulatedTokens)(settings, costs)
    run.run(routes)
    run.close()
    return statistics.fmean(run.seconds[SETTLED:])


def reads_per_token(policy: PolicyKind | None, slots: int, routes: NDArray[np.int32]) -> float:
    """Returns the mean reads that a token waits for, in units of one expert.

    `policy` must read only what was missed; None is the mapped file.
    """
    return seconds_per_token(policy, slots, routes, Costs(layer=0.0, read=1.0))


def emulated_kind(policy: PolicyKind, slots: int) -> PolicyKind:
    """Returns the policy that the engine would choose: LRU where no expert is ever evicted."""
    return PolicyKind.LRU if slots >= EXPERTS else policy


def emulated_settings(policy: PolicyKind, slots: int) -> PolicySettings:
    """Returns the settings that the engine would choose for `slots` slots in each layer."""
    all_experts = (tuple(range(EXPERTS)),) * LAYERS
    policy = emulated_kind(policy, slots)
    return PolicySettings(
        policy,
        EXPERTS,
        K,
        (slots,) * LAYERS,
        pinned=all_experts if policy is PolicyKind.STATIC else (),
        load_budget=default_load_budget(LAYERS, K),
    )


def measure(
    model: Path, shares: list[float], options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields a name for each share of experts, with seconds per token of each alternative.

    Each round runs every alternative once.
    """
    with open_gguf(model) as file:
        ids, parts = token_ids(file, options.n_gen + 1, None), file.parts
        dense, experts = weight_bytes(file)
    test = Test("decode", Task(ids[:1], ids[1:], 1))
    for share in shares:
        entries = list(chosen_entries(model, options))
        seconds: dict[str, list[float]] = {entry.name: [] for entry in entries}
        with MemoryGroup(dense + int(share * experts) + _BESIDE) as group:
            for _, entry in product(range(options.rounds), entries):
                run = run_cold(entry, test, group, parts)
                seconds[entry.name].append(settled_seconds(run.timing.pass_seconds))
                print(f"{model.name}, {100 * share:g} %, {entry.name}: "
                      f"{1 / seconds[entry.name][-1]:.2f} tokens/s", file=sys.stderr)  # fmt: skip
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        yield f"measured, {model.stem}, {100 * share:g} %", medians


def settled_seconds(pass_seconds: list[float]) -> float:
    """Returns the mean seconds per token without the first SETTLED_ON_DISK tokens.

    If the run is not longer than these, all its tokens count.
    """
    settled = pass_seconds[SETTLED_ON_DISK:] or pass_seconds
    return statistics.fmean(settled)


def weight_bytes(file: GgufFile) -> tuple[int, int]:
    """Returns the bytes of the dense weights, and those of the expert weights."""
    experts = sum(t.num_bytes for name, t in file.tensors.items() if is_expert_matrix(name))
    return sum(tensor.num_bytes for tensor in file.tensors.values()) - experts, experts


def chosen_entries(model: Path, options: argparse.Namespace) -> Iterator[Entry]:
    """Yields the alternatives to be measured, with their settings for sharpi_worker.py."""
    ways: Mapping[str, dict[str, object]] = {
        DEFAULT: {},
        "no slots": {"moe_slots": 1},
        "static": {"experts": {"policy": "static"}},
        "lru": {"experts": {"policy": "lru", "prefetch": False}},
        "mapped": {},
    }
    context = (options.n_gen + 256) // 256 * 256
    asked = set(ways) if options.ways is None else set(options.ways.split(","))
    for name, chosen in ((each, ways[each]) for each in ways if each in asked):
        settings = Settings(str(model), options.threads, context, 512, name, dict(chosen))
        yield Entry(name, sys.executable, "sharpi_worker.py", settings)


DEFAULT = "default"
TOLERANCE = 1.02


class Comparison(Struct, frozen=True):
    """The default's time compared with that of the fastest alternative."""

    where: str  # tier, routes and residency
    best: str  # the name of the fastest alternative
    ratio: float  # the default's seconds per token, divided by those of `best`

    @property
    def passes(self) -> bool:
        return self.ratio <= TOLERANCE


def judge(where: str, seconds: Mapping[str, float]) -> Comparison:
    """Compares the default with the fastest alternative.

    `seconds`: seconds per token by name, with the name DEFAULT for the default.
    """
    others = {name: value for name, value in seconds.items() if name != DEFAULT}
    best = min(others, key=lambda name: others[name])
    return Comparison(where, best, seconds[DEFAULT] / others[best])


def table(measured: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a line per case: milliseconds per token of each alternative, and the result.

    `measured`: seconds per token by case and name.
    """
    lines = []
    for where, seconds in measured.items():
        result = judge(where, seconds)
        cells = "  ".join(f"{name} {1e3 * value:.2f}" for name, value in seconds.items())
        state = "ok" if result.passes else "SLOWER"
        lines.append(f"{where:34} {cells}  ms; {result.ratio:.3f} of {result.best}: {state}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
