"""Sharing: how a model is loaded that several ranks run: what they agree on, and the parts."""

from collections.abc import Sequence
from contextlib import suppress

from sharpi.cluster.group import Group
from sharpi.cluster.wire_count import WireCount
from sharpi.config import RunConfig
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart
from sharpi.engine.cluster.follower import Follower
from sharpi.engine.cluster.rank_report import RankReport
from sharpi.engine.cluster.remote_part import RemotePart
from sharpi.engine.cluster.terms import (
    Answer,
    Statement,
    Terms,
    divide,
    own_statement,
    require_alike,
    terms_of,
)
from sharpi.engine.settings import EngineSettings
from sharpi.errors import ClusterError, SharpiError, UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.system.closing import Closing
from sharpi.tiers.layer_division import Division


class Sharing(Closing):
    """One rank's side of loading a model together; `notes` say what was chosen."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.layers = range(0)
        self.notes: tuple[str, ...] = ()
        self.reports: dict[int, RankReport] = {}  # by rank, once the first has ended the run
        self.remote: RemotePart | None = None  # of the first rank, once there are parts

    def agree(
        self,
        config: RunConfig,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
    ) -> EngineSettings:
        """Compares the ranks and divides the layers; returns the settings that all have.

        Raises ClusterError where a rank has another model or version, or none of them has room.
        """
        group = self._group
        own = own_statement(file, hardware, config)
        statements = group.exchange("statement", own)
        require_alike(statements, group.hosts)
        if group.rank == 0:
            terms = self._decide(file, model, settings, statements)
        else:
            terms = self._hear(model)
        first, end = terms.layers[group.rank]
        self.layers = range(first, end)
        return terms.applied(settings)

    def _decide(
        self,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        statements: Sequence[Statement],
    ) -> Terms:
        group = self._group
        try:
            division = divide(file, model, settings, [each.machine for each in statements])
        except SharpiError as error:
            group.state("answer", Answer(refusal=str(error)))
            raise
        self.notes = _notes(division, group.hosts)
        terms = terms_of(settings, division)
        group.state("answer", Answer(terms))
        return terms

    def _hear(self, model: ModelConfig) -> Terms:
        answer = self._group.statement("answer", 0, Answer)
        if answer.terms is None:
            raise ClusterError(f"rank 0 on {self._group.hosts[0]}: {answer.refusal}")
        terms = answer.terms
        _require_sound(terms, model, self._group.size)
        return terms

    def parts(
        self,
        own: Sequence[ModelPart],
        model: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
    ) -> list[ModelPart]:
        """Returns this rank's part; on the first also the others', and the output."""
        self._group.start()
        if self._group.rank > 0:
            return list(own)
        (first,) = own
        assert isinstance(first, CpuPart)
        group = self._group
        self.remote = RemotePart(
            group.channel, model.hidden_size, settings.batch_size, group.size, self._leave
        )
        end = range(model.num_layers, model.num_layers)
        output = CpuPart(model, weights, settings, layers=end, has_output=True, pool=first.pool)
        return [first, self.remote, output]

    def follow(self, part: ModelPart, hidden_size: int) -> None:
        """Runs the layers of this rank, which is not the first, until the first rank ends."""
        group = self._group
        name = f"rank {group.rank} on {group.hosts[group.rank]}"
        is_last = group.rank == group.size - 1
        try:
            Follower(
                part, group.channel, hidden_size, self._report, is_last=is_last, name=name
            ).run()
        except ClusterError:
            raise
        except SharpiError as error:
            group.fail(f"{name}: {error}")
            raise

    @property
    def wire(self) -> WireCount:
        """This rank's messages so far."""
        return self._group.channel.count

    def _report(self, report: RankReport) -> None:
        with suppress(Exception):  # it is no reason to fail that nobody can hear it
            self._group.state("report", report)

    def _leave(self) -> None:
        """Leaves the group in order, and keeps the other ranks' reports."""
        self._group.close()
        self._report(RankReport(self._group.channel.count))
        self.reports = self._group.known_statements("report", RankReport)

    def close(self) -> None:
        self._group.close()


def _require_sound(terms: Terms, model: ModelConfig, size: int) -> None:
    """Raises ClusterError for terms that cannot be of this model and group."""
    ends = [0, *(end for _, end in terms.layers)]
    is_whole = [first for first, _ in terms.layers] == ends[:-1] and ends[-1] == model.num_layers
    if len(terms.layers) != size or not is_whole or min(terms.context_size, terms.batch_size) < 1:
        raise ClusterError("the first rank divides the layers in a way that makes no sense")


def _notes(division: Division, hosts: Sequence[str]) -> tuple[str, ...]:
    own = (
        f"rank {rank} on {host} runs layers {first} to {end - 1}"
        for rank, (host, (first, end)) in enumerate(zip(hosts, division.layers, strict=True))
    )
    if not division.overflow:
        return tuple(own)
    return (*own, "the ranks' RAM does not hold the model; experts are read from disk")


def refuse_for_ranks(config: RunConfig) -> None:
    """Raises UsageError for what a model of several ranks cannot be asked yet."""
    if config.load == "copy":
        raise UsageError("--load copy reads the whole model; ranks map their layers: omit it")
    if config.device == "cuda":
        raise UsageError("ranks compute on their CPUs; omit --device cuda")
    if config.prompt_cache is not None:
        raise UsageError("a prompt cache on disk needs all layers here; omit --prompt-cache")
    if config.experts.trace is not None:
        raise UsageError("a trace of routes needs all layers in one process; omit --moe-trace")
