"""All options for loading and running a model, shared by the commands that do so."""

from pathlib import Path

import typer
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.expert import ExpertOptions
from sharpi.cli.options.machine import MachineOptions
from sharpi.cli.options.miss import MissOptions
from sharpi.cli.options.option_sources import OptionSources
from sharpi.cli.options.record import RecordOptions
from sharpi.cli.options.tier import TierOptions
from sharpi.config import RunConfig


class EngineOptions(Struct, frozen=True):
    """All groups of options for an engine; every command that loads one takes them."""

    machine: MachineOptions
    tiers: TierOptions
    experts: ExpertOptions
    misses: MissOptions
    records: RecordOptions

    def run_config(
        self,
        context: typer.Context,
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
        return self.misses.extend(config, sources)
