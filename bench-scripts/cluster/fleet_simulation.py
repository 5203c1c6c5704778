"""Simulates 2 to 1,000 machines that serve one model: tokens/s, and the time between two tokens.

A pipeline is as many machines as hold the model together; a fleet is many of them behind one
gateway. Step and hop times are measured ones: give those of several_machines.py. Every step of
every group is an event: it waits for its machine, computes, and goes over the wire to the next one.
Machines fail at random times, and their pipeline stands still until the model is loaded again.
`predicted` has the closed forms of the same, which a test compares with the simulation.
"""

import argparse
import heapq
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

MACHINES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


class Times(NamedTuple):
    """Seconds of a step on one machine with all layers, by its sequences, and of a hop."""

    fixed: float  # what a step reads and does once, however many sequences it has
    for_each: float  # sequence
    hop: float

    def step(self, num_sequences: int) -> float:
        """Seconds of all layers together."""
        return self.fixed + self.for_each * num_sequences


class Pipeline(NamedTuple):
    """Machines that hold the model together, and the groups of sequences that go round them."""

    depth: int
    groups: int
    group_size: int


class Failures(NamedTuple):
    """Mean seconds between two failures of a machine, and those until a pipeline works again."""

    between: float
    reload: float


class Speed(NamedTuple):
    """Tokens per second of all sequences, and seconds between two tokens of one."""

    tokens_per_second: float
    token_seconds: float


def predicted(times: Times, own: Pipeline) -> Speed:
    """The closed form: a group comes round once all have had their turn, or once it has gone round.

    The busiest machine takes `groups` steps of its share of the layers in that time.
    """
    share = times.step(own.group_size) / own.depth
    hops = own.depth * times.hop if own.depth > 1 else 0.0
    round_trip = max(own.groups * share, own.depth * share + hops)
    return Speed(own.groups * own.group_size / round_trip, round_trip)


def simulated(times: Times, own: Pipeline, rounds: int) -> Speed:
    """Lets every group go round `rounds` times; the first half is not counted."""
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
    """The part of the time in which a pipeline works: it stands still when any machine fails."""
    between = failures.between / depth
    return between / (between + failures.reload)


def simulated_availability(
    depth: int, failures: Failures, seconds: float, chance: random.Random
) -> float:
    """The part of the time in which a pipeline works, from random failures over a long time."""
    now = works = 0.0
    while now < seconds:
        life = min(chance.expovariate(1 / failures.between) for _ in range(depth))
        works += min(life, seconds - now)
        now += life + failures.reload
    return works / seconds


def fleet(
    machines: int, times: Times, own: Pipeline, failures: Failures, chance: random.Random
) -> tuple[int, Speed, float]:
    """Pipelines, the speed of all of them while they work, and the part of them that does."""
    count = machines // own.depth
    one = simulated(times, own, rounds=60)
    days = 30 * 86400.0
    each = [simulated_availability(own.depth, failures, days, chance) for _ in range(count)]
    part = sum(each) / count
    return count, Speed(one.tokens_per_second * count * part, one.token_seconds), part


def main() -> None:
    """Parses the command line and prints a row for each size of the fleet."""
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
