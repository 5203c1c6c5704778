"""LendingRound: ranks publish their spare RAM, derive who lends which experts, and time it."""

from collections.abc import Callable, Sequence

from sharpi.cluster.group import Group
from sharpi.engine.cluster.agreement import layers_of_parts
from sharpi.engine.lending.expert_client import ExpertClient, ExpertSourceSelector
from sharpi.engine.lending.lender import (
    ExpertPrograms,
    Lender,
    LendingMode,
    LendingOffer,
    Loan,
    lend,
    share_text,
)
from sharpi.engine.load_decisions import LoadedModel
from sharpi.experts.native.store_abi import read_layout
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.rates import measure_disk
from sharpi.tiers.plan import Tier, TierPlan

_DISK_SECONDS = 0.1


def lending_offer(
    plan: TierPlan | None,
    num_layers: int,
    instruction_set: str,
    mode: LendingMode = "auto",
    missing_layers: frozenset[int] = frozenset(),
) -> LendingOffer:
    """Returns the spare RAM and the layers with missing experts, which a rank publishes."""
    if plan is None:
        return LendingOffer(0, (), instruction_set, mode, missing_layers)
    spare = plan.ram_budget - plan.bytes_in(Tier.RAM) if plan.is_mapped else 0
    slots = () if plan.is_mapped or plan.gpus else plan.layers  # a GPU has misses of its own
    indices = (each.index for each in slots if each.ram_slots < each.num_experts)
    own = range(num_layers)  # an MTP head has slots of its own
    short = tuple(index for index in indices if index in own)
    return LendingOffer(max(0, spare), short, instruction_set, mode, missing_layers)


def expert_sizes(file: GgufFile, num_layers: int) -> dict[int, tuple[int, int]]:
    """Returns, by layer, the number of experts and the bytes of one expert."""
    sizes = enumerate(read_layout(file, num_layers).layers)
    return {index: (each.num_experts, each.expert_bytes) for index, each in sizes}


class LendingRound:
    """One rank's part in lending experts, either as a lender or as a borrower.

    `lenders` reply to the requests of ranks that borrow experts. `client` sends this rank's
    requests; None if it borrows nothing. `notes` say what was decided. `on_note` is called with a
    line for the user when a lending rank is lost later.
    """

    def __init__(
        self, group: Group, loaded: LoadedModel, mode: LendingMode, on_note: Callable[[str], None]
    ) -> None:
        self._group, self._on_note = group, on_note
        self._loaded, self._decided = loaded, loaded.decided
        self.lenders: list[Lender] = []
        self.notes: tuple[str, ...] = ()
        self.client: ExpertClient | None = None
        self._mode = mode
        offers = group.exchange("lending offer", self._offer())
        is_short = any(offer.layers_with_misses for offer in offers)
        self._sizes = (
            expert_sizes(self._decided.file, self._decided.model.num_layers) if is_short else {}
        )
        loans = lend(offers, self._sizes)
        self._lend([loan for loan in loans if loan.lender == group.rank])
        own = [loan for loan in loans if loan.owner == group.rank]
        if own:
            self._borrow(own)
        elif mode == "on" and offers[group.rank].layers_with_misses:
            self.notes = ("no other machine with the same kernels has RAM to spare for experts",)

    def _offer(self) -> LendingOffer:
        decided = self._decided
        missing_layers = layers_of_parts(decided.file, decided.file.missing_parts)
        kernels, num_layers = decided.settings.instruction_set, decided.model.num_layers
        return lending_offer(decided.plan, num_layers, kernels, self._mode, missing_layers)

    def _programs(self, loans: Sequence[Loan]) -> ExpertPrograms:
        used, layers = self._decided.model.num_experts_per_token, {loan.layer for loan in loans}
        return ExpertPrograms(self._loaded.weights, self._decided.settings, used, layers)

    def _lend(self, loans: Sequence[Loan]) -> None:
        """Starts a lender for each rank that borrows experts from this rank."""
        for owner in sorted({loan.owner for loan in loans}):
            own = [loan for loan in loans if loan.owner == owner]
            lender = Lender(self._group.request_channel(owner), self._programs(own), own)
            if self._group.read_value("uses remote experts", owner, bool):
                lender.warm()
            self.lenders.append(lender)

    def _borrow(self, loans: Sequence[Loan]) -> None:
        group, ranks = self._group, sorted({loan.lender for loan in loans})
        names = [f"rank {rank} on {group.hosts[rank]}" for rank in ranks]
        shape = self._decided.model.num_layers, self._decided.model.num_experts
        channels = [group.request_channel(rank) for rank in ranks]
        client = ExpertClient(shape, loans, channels, names, self._programs(loans), self._on_note)
        round_trip, read = client.round_trip(), self._read_seconds(loans)
        is_remote = self._mode == "on" or round_trip < read
        group.publish("uses remote experts", is_remote)
        times, whom = _times(round_trip, read), " and ".join(names)
        group.when_lost(client.lost)
        self.client = client
        if is_remote:
            note = f"experts without a slot here are computed by {whom}: {times}; RAM there has"
            self.notes = (f"{note} {share_text(loans, self._sizes)}",)
        else:
            self.notes = (f"experts are read from the disk, not computed by {whom}: {times}",)
            client.pause()
        if self._mode == "auto":
            self._select_source(client, loans, whom, is_remote=is_remote)

    def _select_source(
        self, client: ExpertClient, loans: Sequence[Loan], whom: str, *, is_remote: bool
    ) -> None:
        """Lets the rank switch between requests and disk reads later; each switch prints a line."""

        def changed(is_remote: bool, round_trip: float, read: float) -> None:
            source = f"computed by {whom}" if is_remote else "read from the disk"
            times = _times(round_trip, read)
            self._on_note(f"experts without a slot here are {source} from now on: {times}")

        client.use_selector(
            ExpertSourceSelector(client, lambda: self._read_seconds(loans), is_remote, changed)
        )

    def _read_seconds(self, loans: Sequence[Loan]) -> float:
        num_bytes = sum(self._sizes[loan.layer][1] for loan in loans) / len(loans)
        rate = measure_disk(self._decided.file.parts[0], _DISK_SECONDS).bytes_per_second
        return num_bytes / rate


def _times(round_trip: float, read: float) -> str:
    return f"a request takes {1e3 * round_trip:.2f} ms, a read {1e3 * read:.2f} ms"
