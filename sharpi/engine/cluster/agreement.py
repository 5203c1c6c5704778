"""What the ranks agree on before they load: their facts, the parts that they have, a RunDecision.

Each rank publishes a RankInfo. The first rank compares them, divides the layers and publishes a
RunDecision. Each rank has the first part of a split model and the parts that hold its layers.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import combinations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi import __version__
from sharpi.cluster.channel import LinkStats
from sharpi.engine.placement.choice import NO_GPUS, GpuRates
from sharpi.errors import ClusterError, UsageError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.gguf.header import TensorInfo, layer_of
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.hardware.info import HardwareInfo
from sharpi.hardware.rates import measure_ram_read
from sharpi.model.config import ModelConfig
from sharpi.settings import RopeRequest, RunConfig
from sharpi.tiers.facts import read_facts
from sharpi.tiers.layer_division import (
    Division,
    LayerLoad,
    Machine,
    divide_layers,
    first_layers,
    layer_loads,
)
from sharpi.tiers.settings import EngineSettings

_DIGEST_BYTES = 8
_PIECE_BYTES, _NUM_PIECES = 512, 8


class Fingerprint(Struct, frozen=True):
    """The digests of one rank's file, by which ranks check that they have the same model.

    There is one for the header, and one for each tensor by name: of its name, type, shape and a
    sample of its bytes, since hashing hundreds of gigabytes would take too long.
    """

    header: bytes
    tensors: dict[str, bytes]
    # Names of tensors in parts that are not on this machine.
    missing: frozenset[str] = frozenset()


def fingerprint(file: GgufFile) -> Fingerprint:
    """Returns the fingerprint of a file; reads its header and 4 KB of each tensor."""
    first = (tensor.offset for tensor in file.tensors.values() if tensor.part == 0)
    start = min(first, default=-1)  # a part without tensors is all header
    with file.parts[0].open("rb") as content:
        header = hashlib.blake2b(content.read(start), digest_size=_DIGEST_BYTES)
    here, missing = {}, set()
    for name, tensor in file.tensors.items():
        if tensor.part in file.missing_parts:
            missing.add(name)
        else:
            here[name] = _digest(tensor)
    return Fingerprint(header.digest(), here, frozenset(missing))


def require_same(fingerprints: Sequence[Fingerprint], hosts: Sequence[str]) -> None:
    """Raises ClusterError that names two ranks with different models, and a tensor that differs."""
    for before, rank in combinations(range(len(hosts)), 2):
        if (difference := _difference(fingerprints[before], fingerprints[rank])) is not None:
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} has another model than rank {before} on"
                f" {hosts[before]}: {difference}"
            )


def _difference(first: Fingerprint, own: Fingerprint) -> str | None:
    names = first.tensors.keys() | own.tensors.keys()
    for name in sorted(names - first.missing - own.missing):
        if name not in own.tensors or name not in first.tensors:
            return f"only one of them has the tensor {name}"
        if own.tensors[name] != first.tensors[name]:
            return f"the tensor {name} differs"
    return None if own.header == first.header else "the settings in the header differ"


def _digest(tensor: Tensor) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(f"{tensor.name} {tensor.shape} {tensor.num_bytes}".encode())
    for piece in _pieces(tensor.data_in_file.reshape(-1).view(np.uint8)):
        digest.update(piece.tobytes())
    return digest.digest()


def _pieces(data: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yields eight pieces of 512 bytes, evenly spaced from the first to the last byte of `data`."""
    last = max(0, len(data) - _PIECE_BYTES)
    for number in range(_NUM_PIECES):
        start = last * number // (_NUM_PIECES - 1)
        yield data[start : start + _PIECE_BYTES]


# The tensors that look up tokens and compute logits.
_OF_FIRST_RANK = ("token_embd", "output", "per_layer_")


class Parts(Struct, frozen=True):
    """The number of parts of a rank's model, and the tensors of the parts that its machine has."""

    count: int
    tensors: dict[int, list[TensorInfo]]  # by the part's index; empty for a model of one file


def own_parts(file: GgufFile) -> Parts:
    """Returns the number of parts of the model, and the tensors of those on this machine."""
    return Parts(len(file.parts), file.infos() if len(file.parts) > 1 else {})


def completed(file: GgufFile, ranks: Sequence[Parts], hosts: Sequence[str]) -> GgufFile:
    """Returns the file with the tensors of all parts; raises ClusterError if no rank has one."""
    for rank, other in enumerate(ranks):
        if other.count != len(file.parts):
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} has a model of {other.count} parts, and this one"
                f" has {len(file.parts)}"
            )
    infos = {}
    for part in sorted(file.missing_parts):
        found = next((each.tensors[part] for each in ranks if part in each.tensors), None)
        if found is None:
            raise ClusterError(f"{file.parts[part]}: no machine has this part")
        infos[part] = found
    return file.with_missing_parts(infos) if infos else file


def layers_of_parts(file: GgufFile, parts: Set[int]) -> frozenset[int]:
    """Returns the layers that have a tensor in one of these parts."""
    tensors = file.tensors.values()
    layers = (layer_of(tensor.name) for tensor in tensors if tensor.part in parts)
    return frozenset(layer for layer in layers if layer is not None)


def require_parts(
    file: GgufFile, missing_parts: Set[int], layers: range, rank: int, host: str
) -> None:
    """Raises UsageError if a rank needs a missing part for its layers."""
    for tensor in file.tensors.values():
        layer = layer_of(tensor.name)
        is_needed = (
            layer in layers
            if layer is not None
            else rank == 0 or not tensor.name.startswith(_OF_FIRST_RANK)
        )
        if is_needed and tensor.part in missing_parts:
            raise UsageError(
                f"rank {rank} on {host} needs {tensor.name} and does not have the part that holds"
                f" it, {file.parts[tensor.part].name}: copy it there"
            )


_SAMPLE_BYTES = 64 << 20  # the rate of reading memory is measured over so many bytes
_SAME_SPEED = 1.25  # rates whose ratio is below this count as equal


class RankInfo(Struct, frozen=True):
    """The facts that one rank publishes about itself."""

    version: str
    byte_order: str
    machine: Machine
    fingerprint: Fingerprint
    rope: RopeRequest
    missing_parts: frozenset[int] = frozenset()  # the indices of a split model's missing parts
    only_lends: bool = False  # runs no layers, and holds experts in memory for other ranks


class RunDecision(Struct, frozen=True):
    """The first rank's decision for all ranks, or why the run cannot begin."""

    settings: EngineSettings | None = None  # its own; see `EngineSettings.of_first_rank`
    layers: tuple[tuple[int, int], ...] = ()  # the first layer and the end, for each rank
    counts_experts: bool = False  # the first rank writes statistics of all ranks
    refusal: str = ""


def own_rank_info(
    file: GgufFile, hardware: HardwareInfo, config: RunConfig, gpus: GpuRates = NO_GPUS
) -> RankInfo:
    """Returns this rank's info; its RAM is the requested budget, or else the free memory."""
    rate = measure_ram_read(hardware.fast_cores, _SAMPLE_BYTES)
    ram = hardware.free_ram if config.ram is None else config.ram
    machine = Machine(ram, rate, gpus.num_bytes, gpus.read_rate)
    only_lends = config.cluster is not None and config.cluster.only_lends
    return RankInfo(
        __version__, sys.byteorder, machine, fingerprint(file), config.rope, file.missing_parts,
        only_lends,
    )  # fmt: skip


def require_alike(ranks: list[RankInfo], hosts: tuple[str, ...]) -> None:
    """Raises ClusterError for a rank of another version, byte order, model or RoPE option."""
    first = ranks[0]
    for rank, own in enumerate(ranks):
        if own.version != first.version or own.byte_order != first.byte_order:
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} runs sharpi {own.version} ({own.byte_order}-endian),"
                f" rank 0 on {hosts[0]} runs {first.version} ({first.byte_order}-endian)"
            )
        if own.rope != first.rope:
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} has other options for RoPE than rank 0: give both"
                " the same"
            )
    require_same([own.fingerprint for own in ranks], hosts)


def divide(
    file: GgufFile,
    model: ModelConfig,
    settings: EngineSettings,
    machines: list[Machine],
    missing_parts: Sequence[Set[int]] = (),
) -> Division:
    """Divides the layers by the ranks' memory and speed; raises UsageError for too many ranks."""
    facts = read_facts(file, model, settings.kv_types)
    loads = layer_loads(facts, settings.num_pages, settings.num_states, settings.window_pages)
    output = LayerLoad(facts.embedding_bytes + facts.output_bytes, facts.output_bytes)
    missing = [layers_of_parts(file, parts) for parts in missing_parts]
    return divide_layers(loads, _alike(machines), first_layers(facts), output, missing)


def _alike(machines: list[Machine]) -> list[Machine]:
    """Replaces nearly equal read rates by their mean, since each is one short measurement."""
    rates = [each.read_rate for each in machines]
    if max(rates) > _SAME_SPEED * min(rates):
        return machines
    return [replace(each, read_rate=sum(rates) / len(rates)) for each in machines]


def layers_of_all(division: Division, only_lends: Iterable[bool]) -> tuple[tuple[int, int], ...]:
    """Returns each rank's layers as (first, end); ranks that only lend have an empty range."""
    own, end, layers = iter(division.layers), 0, []
    for runs_none in only_lends:
        first, end = (end, end) if runs_none else next(own)
        layers.append((first, end))
    return tuple(layers)


class RankReport(Struct, frozen=True):
    """The work of one rank: steps, seconds spent computing, and messages."""

    link: LinkStats
    num_steps: int = 0
    busy_seconds: float = 0.0
    experts: ExpertStats | None = None  # of the rank's own layers, if the first rank asked for them
