"""Simulates 2 to 1,000 machines that serve one model: tokens/s, and the time between two tokens.

A pipeline is a set of machines that hold the model together; a fleet is several pipelines behind
one gateway. Pass step and hop times as several_machines.py measures them. Each step of each group
of sequences is an event: the group waits for a machine, the machine computes, and the activations
are sent to the next machine. Machines fail at random times, and their pipeline is down until the
model is loaded again. `predicted` and `predicted_availability` are closed forms of the same
figures, which a test compares with the simulation.
"""

import argparse
import heapq
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

MACHINES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


class Times(NamedTuple):
    """Seconds of a step through all layers on one machine, and of a hop between two machines."""

    fixed: float  # the part of a step that does not depend on the number of sequences
    for_each: float  # the further part for each sequence
    hop: float

    def step(self, num_sequences: int) -> float:
        """Returns the seconds of a step of `num_sequences` through all layers."""
        return self.fixed + self.for_each * num_sequences


class Pipeline(NamedTuple):
    """A pipeline of `depth` machines, and the groups of sequences that circulate in it."""

    depth: int
    groups: int
    group_size: int


class Failures(NamedTuple):
    """Mean seconds between two failures of a machine, and seconds to reload the pipeline."""

    between: float
    reload: float


class Speed(NamedTuple):
    """Tokens per second of all sequences together, and seconds between two tokens of a sequence."""

    tokens_per_second: float
    token_seconds: float


def predicted(times: Times, own: Pipeline) -> Speed:
    """Returns the speed of a pipeline from a closed form of the round-trip time of a group.

    The time is the larger of two: a machine's steps for all groups, or a group's way through all
    machines and hops.
    """
    share = times.step(own.group_size) / own.depth
    hops = own.depth * times.hop if own.depth > 1 else 0.0
    round_trip = max(own.groups * share, own.depth * share + hops)
    return Speed(own.groups * own.group_size / round_trip, round_trip)


def simulated(times: Times, own: Pipeline, rounds: int) -> Speed:
    """Returns the speed of a simulated pipeline in which each group makes `rounds` round trips.

    The first half of the rounds is not counted.
    """
    share = times.step(own.group_size) / own.depth
    hop = times.hop if own.depth > 1 else 0.0
    waiting: list[deque[int]] = [deque() for _ in range(own.depth)]
    is_busy = [False] * own.depth
    events: list[tuple[float, int, int, bool]] = []  # time, group, machine; True if it arrives
    for group in range(own.groups):
        heapq.heappush(events, (0.0, group, 0, True))
    ends: list[list[float]] = [[] for _ in range(own.groups)]
    while min(map(len, ends)) < rounds:
        now, group, machine, arrives = heapq.heappop(events)
        if arrives:
            waiting[machine].append(group)
        else:
            is_busy[machine] = False
            following = (machine + 1) % own.depth
            if following == 0:
                ends[group].append(now + hop)
            heapq.heappush(events, (now + hop, group, following, True))
        if waiting[machine] and not is_busy[machine]:
            is_busy[machine] = True
            next_group = waiting[machine].popleft()
            heapq.heappush(events, (now + share, next_group, machine, False))
    return _speed(ends, own, rounds)


def _speed(ends: Sequence[Sequence[float]], own: Pipeline, rounds: int) -> Speed:
    half = rounds // 2
    seconds = [(each[rounds - 1] - each[half]) / (rounds - 1 - half) for each in ends]
    mean = sum(seconds) / len(seconds)
    return Speed(own.groups * own.group_size / mean, mean)


def predicted_availability(depth: int, failures: Failures) -> float:
    """Returns the fraction of time, 0 to 1, in which a pipeline works, from a closed form.

    The pipeline is down while any of its machines is.
    """
    between = failures.between / depth
    return between / (between + failures.reload)


def simulated_availability(
    depth: int, failures: Failures, seconds: float, chance: random.Random
) -> float:
    """Returns the fraction of `seconds` in which a pipeline works, with random failures."""
    now = works = 0.0
    while now < seconds:
        life = min(chance.expovariate(1 / failures.between) for _ in range(depth))
        works += min(life, seconds - now)
        now += life + failures.reload
    return works / seconds


def fleet(
    machines: int, times: Times, own: Pipeline, failures: Failures, chance: random.Random
) -> tuple[int, Speed, float]:
    """Simulates a fleet; returns its number of pipelines, its speed, and its mean availability.

    Tokens per second are those of all pipelines, reduced by their downtime.
    """
    count = machines // own.depth
    one = simulated(times, own, rounds=60)
    days = 30 * 86400.0
    each = [simulated_availability(own.depth, failures, days, chance) for _ in range(count)]
    part = sum(each) / count
    return count, Speed(one.tokens_per_second * count * part, one.token_seconds), part


def main() -> None:
    """Parses the command line and prints a row for each number of machines in MACHINES."""
    options = _parse()
    times = Times(options.fixed_ms / 1e3, options.sequence_ms / 1e3, options.hop_ms / 1e3)
    failures = Failures(options.failure_days * 86400, options.reload_seconds)
    own = Pipeline(options.depth, options.groups or options.depth, options.group_size)
    chance = random.Random(1)
    print(f"{own.depth} machines a pipeline, {own.groups} groups of {own.group_size} sequences")
    print("machines  pipelines  sequences   tokens/s  ms/token  availability")
    for machines in MACHINES:
        if machines >= own.depth:
            count, speed, part = fleet(machines, times, own, failures, chance)
            sequences = count * own.groups * own.group_size
            print(
                f"{machines:8}  {count:9}  {sequences:9}  {speed.tokens_per_second:9.0f}"
                f"  {speed.token_seconds * 1e3:8.1f}  {100 * part:10.3f} %"
            )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed-ms", type=float, required=True, help="of a step on one machine")
    parser.add_argument("--sequence-ms", type=float, required=True, help="of each sequence in it")
    parser.add_argument("--hop-ms", type=float, required=True)
    parser.add_argument("--depth", type=int, default=2, help="machines that hold the model")
    parser.add_argument("--groups", type=int, help="in a pipeline; as many as machines by default")
    parser.add_argument("--group-size", type=int, default=1, help="sequences of a group")
    parser.add_argument("--failure-days", type=float, default=30.0, help="between two of a machine")
    parser.add_argument("--reload-seconds", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
