"""All options for loading and running a model, shared by the commands that do so."""

from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.loading.cluster import ClusterOptions
from sharpi.cli.options.loading.debug import DebugOptions
from sharpi.cli.options.loading.expert import ExpertOptions
from sharpi.cli.options.loading.machine import MachineOptions
from sharpi.cli.options.loading.miss import MissOptions
from sharpi.cli.options.loading.record import RecordOptions
from sharpi.cli.options.loading.rope import RopeOptions
from sharpi.cli.options.loading.speculation import SpeculationOptions
from sharpi.cli.options.loading.tier import TierOptions
from sharpi.cli.options.option_sources import OptionSources
from sharpi.cli.output.terminal import print_note
from sharpi.config import RunConfig, SpeculationConfig

_OF_GIVEN_TOKENS = ("bench", "perplexity", "logits")  # commands that generate no text


class EngineOptions(Struct, frozen=True):
    """All groups of options for loading and running a model with the engine."""

    machine: MachineOptions
    tiers: TierOptions
    experts: ExpertOptions
    misses: MissOptions
    records: RecordOptions
    speculation: SpeculationOptions
    debug: DebugOptions
    rope: RopeOptions
    cluster: ClusterOptions

    def run_config(
        self,
        context: click.Context,
        model: Path,
        *,
        context_size: int | None = None,
        context_shift: bool = False,
    ) -> RunConfig:
        """Returns the engine's configuration; raises UsageError for contradictory options."""
        sources = OptionSources(context)
        config = self.machine.run_config(
            model, context_size=context_size, context_shift=context_shift
        )
        experts = self.records.extend(self.experts.config(sources), model, sources)
        config = replace(self.tiers.extend(config, sources), experts=experts)
        config = self.debug.extend(self.misses.extend(config, sources), sources)
        config = replace(config, rope=self.rope.request())
        config = self.speculation.extend(config, sources)
        if config.speculation.is_on and context.info_name in _OF_GIVEN_TOKENS:
            config = _without_drafts(config, context.info_name)
        return self.cluster.extend(config, joins=context.info_name == "join")


def _without_drafts(config: RunConfig, command: str) -> RunConfig:
    """Switches speculation off, if it is on by default, for a command that generates no text.

    If the user asked for drafts, prints a note that they have no effect, except for `bench`.
    """
    if config.speculation.is_default:
        return replace(config, speculation=SpeculationConfig())
    if command != "bench":
        print_note(f"drafts have no effect on {command}, whose tokens are given")
    return config
