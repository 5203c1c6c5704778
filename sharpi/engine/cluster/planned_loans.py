"""Predicts which experts the machines of a plan could lend each other, by the rules of a run."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.engine.cluster.hosts_file import Host
from sharpi.engine.cluster.lending_round import expert_sizes, lending_offer
from sharpi.engine.lending.loan import LendingOffer, lend, share_text
from sharpi.engine.placement.placement import Placement
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.tiers.layer_division import Division
from sharpi.tiers.settings import EngineSettings
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
