"""Divides a model's layers among machines, so that they fit and that decoding is fast."""

from collections.abc import Sequence, Set
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.ops.cpu.kv_cache import pages_of
from sharpi.tiers.facts import ModelFacts

# The number of missing layers, bytes that do not fit, the slowest stage's seconds, first layers.
_Best = tuple[int, int, float, tuple[int, ...]]


class Machine(Struct, frozen=True):
    """The memory of one rank for its layers, and its read bandwidth."""

    ram: int  # bytes for weights and KV cache
    read_rate: float  # bytes of weights per second
    vram: int = 0  # bytes of its GPUs for weights and KV cache
    vram_rate: float = 0.0  # bytes of weights per second there


class LayerLoad(NamedTuple):
    """The memory that one layer needs, and the bytes that a token reads of it."""

    num_bytes: int  # weights and KV cache
    token_bytes: int  # weights that one token reads
    expert_bytes: int = 0  # of `num_bytes`, those of routed experts
    expert_token_bytes: int = 0  # of `token_bytes`, those of routed experts


class Division(Struct, frozen=True):
    """The layers of each rank, and the resulting times and memory."""

    layers: tuple[tuple[int, int], ...]  # the first layer and the end, for each rank
    overflow: int  # bytes that do not fit into the memory of their rank
    stage_seconds: tuple[float, ...]  # seconds per token, by rank
    rank_bytes: tuple[int, ...]  # bytes of each rank's layers

    @property
    def single_rate(self) -> float:
        """Tokens per second of a single sequence, without the time of transfers."""
        return 1 / sum(self.stage_seconds)

    @property
    def full_rate(self) -> float:
        """Tokens per second of all sequences if every rank is busy, without time of transfers."""
        return 1 / max(self.stage_seconds)


def layer_loads(
    model: ModelFacts, num_pages: int, num_states: int, window_pages: int = 0
) -> list[LayerLoad]:
    """Returns for each layer the bytes of RAM that it needs, and those that a token reads.

    `num_pages`: pages of the KV cache. `num_states`: copies of the recurrent state. `window_pages`:
    pages of sliding-window layers; 0 means as many as other layers.
    """
    used = model.num_experts_per_token
    return [
        LayerLoad(
            layer.dense_weights_bytes
            + layer.experts_bytes
            + pages_of(num_pages, window_pages, has_window=layer.has_window) * layer.kv_page_bytes
            + num_states * layer.state_bytes,
            layer.dense_weights_bytes + min(used, layer.num_experts) * (layer.expert_bytes or 0),
            layer.experts_bytes,
            min(used, layer.num_experts) * (layer.expert_bytes or 0),
        )
        for layer in model.layers
    ]


def first_layers(model: ModelFacts) -> list[int]:
    """Returns the layers from which on none reads keys and values of an earlier one."""
    needed = [
        min((each.kv_layer for each in model.layers[i:] if each.kv_layer is not None), default=i)
        for i in range(len(model.layers))
    ]
    return [i for i in range(len(model.layers)) if needed[i] >= i]


def divide_layers(
    loads: Sequence[LayerLoad],
    machines: Sequence[Machine],
    starts: Sequence[int],
    output: LayerLoad,
    missing_layers: Sequence[Set[int]] = (),
) -> Division:
    """Divides layers among the machines in their order; the first also has the output.

    It minimizes, in this order: the number of layers on ranks whose file lacks them, by
    `missing_layers`; the bytes that do not fit into RAM and VRAM; and the seconds of the slowest
    rank. The first layer of each rank is one of `starts`. Raises UsageError if there are more
    machines than `starts`.
    """
    count = len(machines)
    missing_by_rank = [*missing_layers, *[frozenset[int]()] * (count - len(missing_layers))]
    if count > len(starts):
        raise UsageError(f"{count} machines cannot share a model of {len(starts)} separable layers")

    def needs(rank: int, first: int, end: int) -> LayerLoad:
        own = [*loads[first:end], *([output] if rank == 0 else [])]
        return LayerLoad(*map(sum, zip(*own, strict=True)))

    def cost(rank: int, first: int, end: int) -> tuple[int, int, float]:
        own, machine = needs(rank, first, end), machines[rank]
        num_missing = sum(layer in missing_by_rank[rank] for layer in range(first, end))
        overflow = max(0, own.num_bytes - machine.ram - machine.vram)
        return num_missing, overflow, token_seconds(own, machine)

    @cache
    def best(rank: int, first: int) -> _Best:
        """Returns the least costs and first layers of the ranks from `rank` on."""
        if rank == count - 1:
            return *cost(rank, first, len(loads)), (first,)
        return min(
            _joined(cost(rank, first, end), best(rank + 1, end), first)
            for end in starts
            if end > first and sum(start >= end for start in starts) >= count - 1 - rank
        )

    firsts = best(0, 0)[3]
    layers = tuple(zip(firsts, (*firsts[1:], len(loads)), strict=True))
    costs = [cost(rank, *own) for rank, own in enumerate(layers)]
    return Division(
        layers,
        overflow=sum(over for _, over, _ in costs),
        stage_seconds=tuple(seconds for _, _, seconds in costs),
        rank_bytes=tuple(needs(rank, *own).num_bytes for rank, own in enumerate(layers)),
    )


def token_seconds(load: LayerLoad, machine: Machine) -> float:
    """Returns a token's seconds of reading; VRAM has dense weights first, then experts."""
    dense = load.num_bytes - load.expert_bytes
    of_dense = min(1.0, machine.vram / dense) if dense else 1.0
    left = max(0, machine.vram - dense)
    of_experts = min(1.0, left / load.expert_bytes) if load.expert_bytes else 1.0
    read_of_dense = load.token_bytes - load.expert_token_bytes
    in_vram = of_dense * read_of_dense + of_experts * load.expert_token_bytes
    if not machine.vram or not machine.vram_rate:
        return load.token_bytes / machine.read_rate
    return in_vram / machine.vram_rate + (load.token_bytes - in_vram) / machine.read_rate


def _joined(own: tuple[int, int, float], rest: _Best, first: int) -> _Best:
    return own[0] + rest[0], own[1] + rest[1], max(own[2], rest[2]), (first, *rest[3])
