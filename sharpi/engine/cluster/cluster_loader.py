"""ClusterLoader: loads a model over several ranks, which agree on settings and layers."""

import time
from collections.abc import Sequence
from contextlib import suppress

from sharpi.cluster.channel import LinkStats
from sharpi.cluster.group import Group
from sharpi.engine.backends.model_part import ModelPart
from sharpi.engine.backends.parts import make_output
from sharpi.engine.cluster.agreement import (
    RankInfo,
    RankReport,
    RunDecision,
    completed,
    divide,
    layers_of_all,
    own_parts,
    own_rank_info,
    require_alike,
    require_parts,
)
from sharpi.engine.cluster.lending_round import LendingRound
from sharpi.engine.cluster.pipeline import Follower, RemotePart
from sharpi.engine.load_decisions import LayerShare, LoadedModel
from sharpi.engine.placement.choice import NO_GPUS, GpuRates
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.errors import ClusterError, SharpiError, UsageError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.settings import ClusterConfig, RunConfig
from sharpi.system.process import Closing, print_running_note
from sharpi.tiers.layer_division import Division
from sharpi.tiers.settings import EngineSettings
from sharpi.units import format_bytes

_LOOK_SECONDS = 0.2


class ClusterLoader(LayerShare, Closing):
    """One rank's side of loading a model over several ranks; `notes` say what was decided."""

    is_shared = True

    def __init__(self, group: Group, config: ClusterConfig) -> None:
        self._group, self._config = group, config
        self.is_first = group.rank == 0
        self.layers: range | None = range(0)  # None if this process runs all layers
        self._ring: tuple[int, ...] = ()  # the ranks that run layers
        self._round: LendingRound | None = None
        self._records: ExpertRecords | None = None
        self._counts_experts = False
        self.notes: tuple[str, ...] = ()
        self.reports: dict[int, RankReport] = {}  # by rank, once the first rank has ended the run
        self.remote: RemotePart | None = None  # on the first rank, once `parts` was called

    def complete(self, file: GgufFile) -> GgufFile:
        """Returns the file with tensors of all parts; raises ClusterError if no rank has one."""
        parts = self._group.exchange("parts", own_parts(file))
        return completed(file, parts, self._group.hosts)

    def agree(
        self,
        config: RunConfig,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
        gpus: GpuRates = NO_GPUS,
    ) -> EngineSettings:
        """Divides the layers; returns shared settings, or raises ClusterError if ranks differ."""
        group = self._group
        own = own_rank_info(file, hardware, config, gpus)
        ranks = group.exchange("rank info", own)
        require_alike(ranks, group.hosts)
        if group.rank == 0:
            wants_counts = bool(config.experts.stats or config.experts.profile)
            decision = self._decide(file, model, settings, ranks, counts_experts=wants_counts)
        else:
            decision = self._receive_decision(model)
        assert decision.settings is not None
        self._counts_experts = decision.counts_experts
        self._ring = tuple(rank for rank, (first, end) in enumerate(decision.layers) if end > first)
        if self._ring == (group.rank,):
            self.layers = None
        elif group.rank in self._ring:
            self.layers = range(*decision.layers[group.rank])
        else:
            self.layers = range(model.num_layers, model.num_layers)
        return settings.of_first_rank(decision.settings)

    def _decide(
        self,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        ranks: list[RankInfo],
        *,
        counts_experts: bool,
    ) -> RunDecision:
        group = self._group
        try:
            working = [each for each in ranks if not each.only_lends]
            machines = [each.machine for each in working]
            missing = [each.missing_parts for each in working]
            division = divide(file, model, settings, machines, missing)
            layers = layers_of_all(division, [each.only_lends for each in ranks])
            for rank, (own, ends) in enumerate(zip(ranks, layers, strict=True)):
                require_parts(file, own.missing_parts, range(*ends), rank, group.hosts[rank])
        except SharpiError as error:
            group.publish("decision", RunDecision(refusal=str(error)))
            raise
        self.notes = tuple(_notes(division, layers, ranks, group.hosts))
        decision = RunDecision(settings, layers, counts_experts)
        group.publish("decision", decision)
        return decision

    def _receive_decision(self, model: ModelConfig) -> RunDecision:
        decision = self._group.read_value("decision", 0, RunDecision)
        if decision.settings is None:
            raise ClusterError(f"rank 0 on {self._group.hosts[0]}: {decision.refusal}")
        _check(decision.layers, decision.settings, model, self._group.size)
        return decision

    def parts(self, own: Sequence[ModelPart], loaded: LoadedModel) -> list[ModelPart]:
        """Returns this rank's parts; on the first rank, also the remote and the output part."""
        group, model, settings = self._group, loaded.decided.model, loaded.decided.settings
        group.start(self._ring)
        self._lend(loaded)
        self._records = loaded.records
        if group.rank == 0:
            loaded.records.take_others(self._other_experts)
        elif self._counts_experts:
            loaded.records.report_uses()
        if group.rank > 0 or len(self._ring) == 1:
            return list(own)
        ranks = len(self._ring)
        self.remote = RemotePart(
            group.channel, model.hidden_size, settings.batch_size, ranks, self._leave
        )
        return [*own, self.remote, make_output(own[-1], model, loaded.weights, settings)]

    def _lend(self, loaded: LoadedModel) -> None:
        self._round = LendingRound(
            self._group, loaded, self._config.remote_experts, print_running_note
        )
        self.notes = (*self.notes, *self._round.notes)
        client = self._round.client
        if client is not None and loaded.tier is not None:
            loaded.tier.use_remote(client)
        if len(self._ring) > 1 or self._group.rank > 0:
            return
        if client is None:
            self._group.close()  # no other rank has work left
        else:
            client.when_closed(self._group.close)

    def _other_experts(self) -> list[ExpertStats]:
        """Returns the expert statistics of the other ranks, by rank, once they have ended."""
        reports = (self.reports[rank] for rank in sorted(self.reports) if rank)
        return [report.experts for report in reports if report.experts is not None]

    def follow(self, runner: Runner, hidden_size: int) -> None:
        """Runs this rank's layers until the first rank ends the run; not for the first rank."""
        group = self._group
        if group.rank not in self._ring:
            return self._only_lend()
        name = f"rank {group.rank} on {group.hosts[group.rank]}"
        is_last = group.rank == self._ring[-1]
        try:
            assert self._records is not None
            Follower(
                runner, self._records, group.channel, hidden_size, self._report,
                is_last=is_last, name=name,
            ).run()  # fmt: skip
        except ClusterError:
            raise
        except SharpiError as error:
            group.fail(f"{name}: {error}")
            raise

    def _only_lend(self) -> None:
        """Waits until this rank's lenders have ended; raises ClusterError once a rank is lost."""
        assert self._round is not None
        while any(lender.is_at_work for lender in self._round.lenders):
            self._group.raise_if_failed()
            time.sleep(_LOOK_SECONDS)

    @property
    def link(self) -> LinkStats:
        return self._group.channel.stats

    def _report(self, report: RankReport) -> None:
        with suppress(Exception):  # the failure itself matters, not that no rank can be told of it
            self._group.publish("report", report)

    def _leave(self) -> None:
        """Tells the other ranks that the run ends, and keeps the reports that they send."""
        self._group.close()
        self._report(RankReport(self._group.channel.stats))
        self.reports = self._group.published_values("report", RankReport)

    def close(self) -> None:
        self._group.close()
        for lender in self._round.lenders if self._round else ():
            lender.close()


def _check(
    layers: Sequence[tuple[int, int]], settings: EngineSettings, model: ModelConfig, size: int
) -> None:
    """Raises ClusterError unless `layers` divide all layers of the model among `size` ranks."""
    ends = [0, *(end for _, end in layers)]
    is_whole = [first for first, _ in layers] == ends[:-1] and ends[-1] == model.num_layers
    if len(layers) != size or not is_whole or min(settings.context_size, settings.batch_size) < 1:
        raise ClusterError("the first rank's division of the layers is invalid")


def _notes(
    division: Division,
    layers: Sequence[tuple[int, int]],
    ranks: Sequence[RankInfo],
    hosts: Sequence[str],
) -> tuple[str, ...]:
    own = (
        f"rank {rank} on {host} runs layers {first} to {end - 1}{_vram_text(ranks[rank])}"
        if end > first
        else f"rank {rank} on {host} runs no layers, and lends its RAM for experts"
        for rank, (host, (first, end)) in enumerate(zip(hosts, layers, strict=True))
    )
    if not division.overflow:
        return tuple(own)
    return (*own, "the ranks' RAM does not hold their layers; experts are read from disk")


def _vram_text(rank: RankInfo) -> str:
    vram = rank.machine.vram
    return f", with {format_bytes(vram)} of VRAM for them" if vram else ""


def refuse_for_ranks(config: RunConfig) -> None:
    """Raises UsageError for a setting that a model of several ranks does not support yet."""
    if config.load == "copy":
        raise UsageError("--load copy reads the whole model; ranks map their layers: omit it")
    if config.prompt_cache is not None:
        raise UsageError("a prompt cache on disk needs all layers here; omit --prompt-cache")
    if config.experts.trace is not None:
        raise UsageError("a trace of routes needs all layers in one process; omit --moe-trace")
