"""Predicts which experts the machines of a plan could lend each other, by the rules of a run."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.engine.cluster.hosts_file import Host
from sharpi.engine.cluster.lending_round import expert_sizes, room_of
from sharpi.engine.lending.loan import Room, lend, share_text
from sharpi.engine.placement.placement import Placement
from sharpi.engine.settings import EngineSettings
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.tiers.layer_division import Division
from sharpi.units import parse_size


def planned_loans(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    settings: EngineSettings,
    hardware: HardwareInfo,
    division: Division,
    hosts: Sequence[Host],
) -> Iterator[str]:
    """Yields a line of text for each pair of a machine that could lend and one that would borrow.

    It assumes that all machines have the same kernels.
    """

    def room(host: Host, layers: range) -> Room:
        vram = parse_size(host.vram) or None
        own = replace(config, ram=host.machine().ram, vram=vram, device="auto" if vram else "cpu")
        plan = Placement(own, file, model, settings, hardware, layers).plan()
        return room_of(plan, model.num_layers, settings.instruction_set)

    rooms = [room(host, range(*ends)) for host, ends in zip(hosts, division.layers, strict=True)]
    if not any(each.lacking for each in rooms):
        return
    sizes = expert_sizes(file, model.num_layers)
    loans = lend(rooms, sizes)
    for lender, owner in sorted({(loan.lender, loan.owner) for loan in loans}):
        own = [loan for loan in loans if (loan.lender, loan.owner) == (lender, owner)]
        yield (
            f"rank {lender} on {hosts[lender].name} has RAM for {share_text(own, sizes)}"
            f" of rank {owner} on {hosts[owner].name}"
        )
