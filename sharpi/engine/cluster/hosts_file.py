"""Plans a model over machines that need not be connected, from a file that describes them.

The file is TOML, with a table for each machine in the order of the ranks:

    [[host]]
    name = "desk"
    ram = "64GiB"    # for weights and KV cache
    read = "40GiB"   # of RAM, per second
    vram = "24GiB"   # of its GPUs; none by default
    vram_read = "800GiB"  # of VRAM, per second; 400GiB by default
    hop_ms = 0.3     # of a message to the next machine; 0.3 by default
    only_lends = true  # as with `sharpi join --only-lend`; false by default
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sharpi.engine.cluster.agreement import layers_of_all
from sharpi.engine.cluster.lending_round import expert_sizes, lending_offer
from sharpi.engine.lending.lender import LendingOffer, lend, share_text
from sharpi.engine.placement.placement import Placement
from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.settings import RunConfig
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.layer_division import Division, Machine
from sharpi.tiers.settings import EngineSettings
from sharpi.units import parse_size


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """One machine of a hosts file; sizes and rates are texts such as 64GiB."""

    name: str
    ram: str
    read: str
    vram: str = "0"
    vram_read: str = "400GiB"
    hop_ms: float = 0.3
    only_lends: bool = False

    def machine(self) -> Machine:
        """Returns the host as a Machine, in bytes; raises ValueError if a size cannot be parsed."""
        rate, vram_rate = float(parse_size(self.read)), float(parse_size(self.vram_read))
        if rate <= 0 or vram_rate <= 0 or self.hop_ms < 0:
            raise ValueError("`read` and `vram_read` are above 0, and `hop_ms` not below")
        vram = max(0, parse_size(self.vram) - RESERVE_BYTES)
        return Machine(parse_size(self.ram), rate, vram, vram_rate)


class _Hosts(Struct, frozen=True, forbid_unknown_fields=True):
    host: list[Host]


def read_hosts(path: Path) -> list[Host]:
    """Reads the machines; raises UsageError that names the file and what is wrong in it."""
    try:
        hosts = msgspec.toml.decode(path.read_bytes(), type=_Hosts).host
        for each in hosts:
            each.machine()
    except OSError as error:
        raise UsageError(f"--hosts {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--hosts {path}: {error}") from None
    if not hosts:
        raise UsageError(f"--hosts {path}: it names no machine; begin each with [[host]]")
    if all(each.only_lends for each in hosts):
        raise UsageError(f"--hosts {path}: every machine only lends; one has to run the layers")
    if hosts[0].only_lends:
        raise UsageError(f"--hosts {path}: the first machine runs layers, and cannot only lend")
    return hosts


def with_lenders(division: Division, hosts: list[Host]) -> Division:
    """Returns the division with an empty range of layers added for each host that only lends."""
    own = iter(zip(division.stage_seconds, division.rank_bytes, strict=True))
    lends = [host.only_lends for host in hosts]
    stages, sizes = zip(*((0.0, 0) if each else next(own) for each in lends), strict=True)
    return Division(layers_of_all(division, lends), division.overflow, stages, sizes)


def rates(division: Division, hosts: list[Host]) -> tuple[float, float]:
    """Returns the tokens per second of one sequence, and of enough to keep all machines busy."""
    working = [each for each in hosts if not each.only_lends]
    hops = sum(each.hop_ms for each in working) / 1e3 if len(working) > 1 else 0.0
    return 1 / (1 / division.single_rate + hops), division.full_rate


def planned_loans(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    settings: EngineSettings,
    hardware: HardwareInfo,
    division: Division,
    hosts: Sequence[Host],
) -> Iterator[str]:
    """Yields a line for each pair of a machine that could lend and one that would borrow."""

    def offer(host: Host, layers: range) -> LendingOffer:
        vram = parse_size(host.vram) or None
        own = replace(config, ram=host.machine().ram, vram=vram, device="auto" if vram else "cpu")
        plan = Placement(own, file, model, settings, hardware, layers).plan()
        return lending_offer(plan, model.num_layers, settings.instruction_set)

    offers = [offer(host, range(*ends)) for host, ends in zip(hosts, division.layers, strict=True)]
    if not any(each.layers_with_misses for each in offers):
        return
    sizes = expert_sizes(file, model.num_layers)
    loans = lend(offers, sizes)
    for lender, owner in sorted({(loan.lender, loan.owner) for loan in loans}):
        own = [loan for loan in loans if (loan.lender, loan.owner) == (lender, owner)]
        yield (
            f"rank {lender} on {hosts[lender].name} has RAM for {share_text(own, sizes)}"
            f" of rank {owner} on {hosts[owner].name}"
        )
